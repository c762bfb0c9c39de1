"""The one doorway to a model. It answers `Answer`, or says whose failure it is.

Named models map to endpoints. Without a configured endpoint the built-in `builtin.extractive` serves. A breaker per
endpoint keeps a failing provider from being asked by every lane.
"""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import openai
from pydantic import BaseModel, ValidationError

from libs.chassis.breaker import Breaker, pause_s
from libs.chassis.logs import logger
from libs.chassis.models import NamedModel, WrongModels, read_models
from libs.chassis.texts import is_storable
from services.distiller import prompts
from services.distiller.answer import Answer, AskedLine, KnownEntry
from services.distiller.domain import LaneFailure, ProviderFailure, Truncated
from services.distiller.extractive import extracted
from services.distiller.settings import DistillerSettings
from services.distiller.store.usage import Spent

BUILTIN = "builtin.extractive"
MAX_TOKENS = 10**9
# How an answer's shape is asked for, the strictest first; but for the first it is also said in words.
FORMS = ("json_schema", "json_object", None)
UNSUPPORTED = (400, 422, 501)  # what servers say to a form that they lack
FENCE = re.compile(r"^\s*```(?:json)?\s*\n(.*?)\n?```\s*$", re.DOTALL)
ShapeT = TypeVar("ShapeT", bound=BaseModel)

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer as text, with its calls, of which the last one was answered.

    `recovered` when the provider had been failing until now.
    """

    text: str
    spent: Sequence[Spent]
    recovered: bool = False


class Failed(Exception):
    """Calls that were paid for, or may have been, and did not help: `cause` says whose failure it is."""

    def __init__(self, cause: Exception, spent: Sequence[Spent], recovered: bool) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.spent = spent
        self.recovered = recovered


class Model(Protocol):
    """`paid`: whether its answers cost something and so must be kept before they are used."""

    name: str
    provider: str
    paid: bool

    async def ask(self, lines: Sequence[AskedLine], known: Sequence[KnownEntry], instructions: str | None) -> Reply: ...

    async def close(self) -> None: ...


def parse(text: str) -> Answer:
    """The answer in a reply. Raises `LaneFailure`."""
    answer = shaped(text, Answer)
    if not all(is_storable(f"{each.path}{each.statement}{each.description}") for each in answer.changes):
        raise LaneFailure("wrong shape: NUL or half of a surrogate pair")
    return answer


def shaped(text: str, shape: type[ShapeT]) -> ShapeT:
    """A reply in the shape that was asked for; fenced JSON is JSON too. Raises `LaneFailure`."""
    try:
        return shape.model_validate_json(_bare(text))
    except ValidationError as error:
        raise Useless(*_fault(error, shape)) from None


class Useless(LaneFailure):
    """An answer that is not what was asked for, and the outcome as which its call is booked."""

    def __init__(self, outcome: str, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome


def _fault(error: ValidationError, shape: type[BaseModel]) -> tuple[str, str]:
    """The outcome of an answer, and what is wrong with it first: never a word of it, which may be the user's."""
    first, *others = error.errors(include_input=False, include_url=False)
    if first["type"] == "json_invalid":
        return "not_json", f"not JSON: {first['ctx']['error']}"
    ours = json.dumps(shape.model_json_schema())
    where = ".".join(str(part) if f'"{part}"' in ours or isinstance(part, int) else "…" for part in first["loc"])
    more = f", and {len(others)} more" if others else ""
    return "wrong_shape", f"wrong shape: {where or 'the whole'}: {first['type']}{more}"


def _bare(text: str) -> str:
    fenced = FENCE.match(text)
    return fenced.group(1) if fenced else text


class Extractive:
    """The built-in model: deterministic, offline, free."""

    name = BUILTIN
    provider = BUILTIN
    paid = False

    async def ask(self, lines: Sequence[AskedLine], known: Sequence[KnownEntry], instructions: str | None) -> Reply:
        answer = await extracted(lines, known)
        return Reply(answer.model_dump_json(), [Spent(self.name, "answered")])

    async def close(self) -> None:
        """Nothing is open."""


class ChatCompletions:
    """Any OpenAI-compatible server: Chat Completions in the strictest of `FORMS` that it takes and obeys.

    Which one that is holds for the endpoint until the process ends. A form that is refused is booked as a call without
    tokens.
    """

    paid = True

    def __init__(
        self, config: NamedModel, *, timeout_s: float, output_tokens: int, client: openai.AsyncOpenAI | None = None
    ) -> None:
        self.name = config.name
        self.provider = config.base_url or "openai"
        self._model = config.model or config.name
        self._timeout_s = timeout_s
        self._output_tokens = output_tokens
        self._client = client or openai.AsyncOpenAI(
            base_url=config.base_url,
            api_key=config.api_key.get_secret_value() if config.api_key else "none",
            max_retries=0,
            timeout=timeout_s,
        )
        self._form = 0
        self.breaker = Breaker()
        self._why = ""

    async def ask(self, lines: Sequence[AskedLine], known: Sequence[KnownEntry], instructions: str | None) -> Reply:
        fresh = sum(not line.context for line in lines)
        return await self.complete(prompts.messages(lines, known, instructions), Answer, fresh)

    async def complete(self, messages: list[dict[str, str]], shape: type[BaseModel], parts: int) -> Reply:
        """The answer to a question of so many parts; `Truncated` names them, since fewer would fit."""
        if wait_s := self.breaker.wait_s():
            raise ProviderFailure(self._why, self.provider, wait_s)
        refused: list[Spent] = []
        try:
            async with asyncio.timeout(self._timeout_s):
                completion = await self._in_a_form_it_takes(messages, shape, refused)
        except (TimeoutError, openai.APITimeoutError):
            raise self._failed(LaneFailure("deadline"), "deadline", refused) from None
        except openai.APIStatusError as error:
            raise self._failed(self._of_status(error), f"http_{error.status_code}", refused) from None
        except openai.APIConnectionError:
            away = ProviderFailure("the model's endpoint cannot be reached", self.provider)
            raise self._failed(away, "unreachable", refused) from None
        except (json.JSONDecodeError, openai.APIError):
            raise self._failed(LaneFailure("not JSON"), "not_json", refused) from None
        read = _read(completion)
        if read is None:
            raise self._failed(LaneFailure("wrong shape: no completion"), "wrong_shape", refused)
        if read.is_refused:
            raise self._failed(LaneFailure("refused"), "refused", refused, read.tokens)
        if read.is_cut:
            raise self._failed(Truncated("truncated", parts), "truncated", refused, read.tokens)
        if not is_storable(read.content):
            unstorable = LaneFailure("not JSON: NUL or half of a surrogate pair")
            raise self._failed(unstorable, "not_json", refused, read.tokens)
        try:
            shaped(read.content, shape)
        except Useless as useless:
            if useless.outcome == "not_json":
                self._form = max(self._form, 1)  # it did not heed the schema, so the next question says it in words
            raise self._failed(useless, useless.outcome, refused, read.tokens) from None
        return Reply(read.content, [*refused, Spent(self.name, "answered", *read.tokens)], self.breaker.passed())

    async def close(self) -> None:
        await self._client.close()

    async def _in_a_form_it_takes(self, messages: Any, shape: type[BaseModel], refused: list[Spent]) -> Any:
        form = self._form
        while True:
            try:
                completion = await self._complete(messages, shape, FORMS[form])
            except openai.APIStatusError as error:
                if error.status_code not in UNSUPPORTED or form + 1 == len(FORMS):
                    raise
                refused.append(Spent(self.name, f"http_{error.status_code}"))
                form += 1
            else:
                self._form = max(self._form, form)  # learned only when a form was taken
                return completion

    async def _complete(self, messages: Any, shape: type[BaseModel], form: str | None) -> Any:
        schema = shape.model_json_schema()
        if form != "json_schema":
            messages = [{"role": "system", "content": prompts.in_words(schema)}, *messages]
        response_format: Any = {
            "json_schema": {"type": form, "json_schema": {"name": "changes", "schema": schema}},
            "json_object": {"type": form},
            None: openai.NOT_GIVEN,
        }[form]
        return await self._client.chat.completions.create(
            model=self._model,
            messages=messages,
            response_format=response_format,
            max_tokens=self._output_tokens,
            temperature=0,
        )

    def _failed(
        self, cause: Exception, outcome: str, refused: Sequence[Spent], tokens: tuple[int, int] = (0, 0)
    ) -> Failed:
        """Books the failure; any answer that is not the provider's own failure shows that it is there again."""
        recovered = False
        if isinstance(cause, ProviderFailure):
            self._why = str(cause)
            if not self.breaker.is_open:
                log.warning("model_endpoint_fails", model=self.name, reason=self._why)
            self.breaker.failed(cause.retry_after_s)
        elif outcome != "deadline":
            recovered = self.breaker.passed()
        return Failed(cause, [*refused, Spent(self.name, outcome, *tokens)], recovered)

    def _of_status(self, error: openai.APIStatusError) -> Exception:
        """Whose failure a status is: 429, 402, 5xx and a refused key are the provider's; what is left is the lane's."""
        status = error.status_code
        if status in (401, 402, 403, 404, 408, 409, 429) or status >= 500:
            pause = pause_s(error.response.headers.get("retry-after"))
            return ProviderFailure(f"the model's endpoint answered {status}", self.provider, pause)
        return LaneFailure(f"the model's endpoint refused the request with {status}")


@dataclass(frozen=True, slots=True)
class _Completion:
    content: str
    is_refused: bool
    is_cut: bool
    tokens: tuple[int, int]


def _read(completion: Any) -> _Completion | None:
    """What a completion says; None when it is none. The client builds its objects without checking a server's word."""
    choices = getattr(completion, "choices", None)
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = getattr(choice, "message", None)
    if choice is None or message is None:
        return None
    content = getattr(message, "content", None)
    refusal = getattr(message, "refusal", None)
    finish = getattr(choice, "finish_reason", None)
    usage = getattr(completion, "usage", None)
    tokens = (_tokens(getattr(usage, "prompt_tokens", 0)), _tokens(getattr(usage, "completion_tokens", 0)))
    is_refused = bool(refusal) or finish == "content_filter"
    return _Completion(content if isinstance(content, str) else "", is_refused, finish == "length", tokens)


def _tokens(said: Any) -> int:
    """A count as a server says it; nonsense counts nothing, and none lowers what was spent."""
    return min(said, MAX_TOKENS) if type(said) is int and said > 0 else 0


class Models:
    """The models by name and alias; the default is the configured one, else the built-in one."""

    def __init__(
        self, models: Mapping[str, Model], default: str, named: Sequence[NamedModel] = (), file: Path | None = None
    ) -> None:
        self._models = dict(models)
        self._named = _by_name(named)
        self._file = file
        self.default = default

    @property
    def names(self) -> list[str]:
        return sorted(self._models)

    def get(self, name: str | None) -> Model | None:
        return self._models.get(name or self.default)

    @property
    def endpoints(self) -> list[ChatCompletions]:
        return [each for each in set(self._models.values()) if isinstance(each, ChatCompletions)]

    def shut(self) -> list[ChatCompletions]:
        """Those whose endpoint is not asked now, for it was failing."""
        return [each for each in self.endpoints if each.breaker.is_shut]

    def may_be_used_by(self, principal: str, name: str | None) -> bool:
        named = self._named.get(name or self.default)
        return named is None or named.may_be_used_by(principal)

    def cost(self, name: str, prompt_tokens: int, completion_tokens: int) -> float | None:
        """In the currency of the model's price; None for one without."""
        price = self._named[name].price if name in self._named else None
        return None if price is None else (price.prompt * prompt_tokens + price.completion * completion_tokens) / 1e6

    async def read_again(self) -> None:
        """Who may use a model, and its price, hold from the next look at the file; all else from the next start."""
        if self._file is None:
            return
        try:
            self._named |= _by_name(await asyncio.to_thread(read_models, self._file))
        except (OSError, ValueError) as unusable:
            log.warning("models_file_unusable", error=type(unusable).__name__)

    async def close(self) -> None:
        for model in set(self._models.values()):
            await model.close()

    @classmethod
    def of(cls, settings: DistillerSettings) -> "Models":
        models: dict[str, Model] = {BUILTIN: Extractive()}
        named = _named(settings)
        for config in named:
            model = models.get(config.name) or ChatCompletions(
                config, timeout_s=settings.model_timeout_s, output_tokens=settings.model_output_tokens
            )
            models |= dict.fromkeys(config.names, model)
        default = settings.model or next((config.name for config in named), BUILTIN)
        return cls(models, default, named, settings.models_file)


def _by_name(named: Sequence[NamedModel]) -> dict[str, NamedModel]:
    return {name: each for each in named for name in each.names}


def _named(settings: DistillerSettings) -> list[NamedModel]:
    """The models that the settings name and that complete chats. Raises `WrongModels` when `MODEL` is none of them."""
    if settings.models_file is None:
        if settings.model in (None, BUILTIN):
            return []
        return [NamedModel(name=settings.model, base_url=settings.openai_base_url, api_key=settings.openai_api_key)]
    named = [each for each in read_models(settings.models_file) if not each.makes_embeddings]
    if unknown := [each.name for each in named if each.is_built_in and each.name != BUILTIN]:
        raise WrongModels(f"{' and '.join(unknown)} is not built in, {BUILTIN} is")
    known = list(dict.fromkeys([BUILTIN, *(name for each in named for name in each.names)]))
    if settings.model and settings.model not in known:
        raise WrongModels(f"MODEL is {settings.model}, but the models are {', '.join(known)}")
    return named
