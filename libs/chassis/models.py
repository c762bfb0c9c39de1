"""`MODELS_FILE`: the named models of a deployment. Every service that asks one reads this one file.

A JSON list with an object for each model. One with `dimensions` makes embeddings, any other completes chats. Names that
begin with `builtin.` are of models without an endpoint, which a service has itself: who chooses one sends nothing away.
Of such a one the file only says aliases and users.
"""

import json
from collections import Counter
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretStr, TypeAdapter

BUILTIN_PREFIX = "builtin."
MOST_DIMENSIONS = 16_000  # pgvector's, for a vector of half precision


class Price(BaseModel):
    """Of a million tokens, in any one currency."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: float = Field(default=0.0, ge=0)
    completion: float = Field(default=0.0, ge=0)


class NamedModel(BaseModel):
    """A model at an OpenAI-compatible endpoint.

    `model` is what the endpoint calls it, its `name` when absent; `aliases` are other names for it. `users` are the
    principals who may use it, by e-mail or client id; everybody may when absent.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str = Field(min_length=1)
    aliases: tuple[str, ...] = ()
    base_url: str | None = None
    api_key: SecretStr | None = None
    model: str | None = None
    dimensions: int | None = Field(default=None, ge=1, le=MOST_DIMENSIONS)
    price: Price | None = None
    users: frozenset[str] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    @property
    def makes_embeddings(self) -> bool:
        return self.dimensions is not None

    @property
    def is_built_in(self) -> bool:
        return self.name.startswith(BUILTIN_PREFIX)

    @property
    def has_endpoint(self) -> bool:
        """Says something of one."""
        return any(each is not None for each in (self.base_url, self.api_key, self.model, self.dimensions))

    def may_be_used_by(self, principal: str) -> bool:
        return self.users is None or principal in self.users


class WrongModels(ValueError):
    """The settings contradict themselves about models; the words are for the operator and hold no secret."""


def read_models(path: Path) -> list[NamedModel]:
    """The models of the file, in its order. Raises `OSError`, or `ValueError` for what it must not hold."""
    models = TypeAdapter(list[NamedModel]).validate_python(json.loads(path.read_text()))
    called = Counter(name for model in models for name in model.names)
    if doubled := [name for name, count in called.items() if count > 1]:
        raise WrongModels(f"more than one model is called {' or '.join(doubled)}")
    at_endpoints = [name for model in models for name in (model.aliases if model.is_built_in else model.names)]
    at_endpoints += [model.name for model in models if model.is_built_in and model.has_endpoint]
    if taken := [name for name in at_endpoints if name.startswith(BUILTIN_PREFIX)]:
        raise WrongModels(f"{' and '.join(taken)} cannot be a model at an endpoint: {BUILTIN_PREFIX}* is built in")
    return models
