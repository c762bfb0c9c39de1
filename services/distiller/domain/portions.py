"""How much of what was said one distillation takes, and which of it is evidence."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from libs.contracts.events import Range
from libs.contracts.requests import Line, RelatedEntry, Transcript
from services.distiller.answer import AskedLine
from services.distiller.domain.failures import LaneFailure
from services.distiller.domain.lanes import Behind
from services.distiller.domain.questions import Numbered

HEADER = re.compile(r"(?:^|\s)(?:/[\w-]+){2,}\.md\b")
CHARS_PER_TOKEN = 4
LINE_TOKENS = 8  # of what stands around a line's text
CONTEXT_SHARE = 4  # a quarter of a portion, at most, is context
MARKED = re.compile(r"<memory>.*?(?:</memory>|$)", re.DOTALL)


@dataclass
class Portion:
    """The lines of one distillation, being gathered session by session up to the limits."""

    max_lines: int
    max_tokens: int
    context_lines: int
    lines: list[Numbered] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    tokens: int = 0
    evidence_lines: int = 0
    complete: bool = True
    moved: bool = False
    again_taken: dict[UUID, list[int]] = field(default_factory=dict)
    oldest_appended_at: datetime | None = None

    @property
    def full(self) -> bool:
        return self.evidence_lines >= self.max_lines or self.tokens >= self.max_tokens

    def add(self, behind: Behind, transcript: Transcript) -> None:
        """Takes what still fits of a session. A session that is gone counts as distilled."""
        if transcript.gone:
            self.ranges.append(self._range(behind, behind.wanted))
            self.again_taken[behind.session_uid] = list(behind.again)
            self.moved = True
            return
        through = transcript.read_through
        left = [position for position in behind.again if position > through]
        fresh = [line for line in transcript.lines if _is_fresh(line, behind)]
        if fresh:
            self._take_context(behind, [line for line in transcript.lines if not _is_fresh(line, behind)])
            self.oldest_appended_at = min(
                (time for time in (self.oldest_appended_at, behind.oldest_appended_at) if time is not None),
                default=None,
            )
        for line in fresh:
            if self.full:
                through = line.position - 1
                left = [position for position in behind.again if position >= line.position]
                break
            self._take(behind, line, _cut(_readable(line), self.max_tokens * CHARS_PER_TOKEN), context=False)
        self.again_taken[behind.session_uid] = [position for position in behind.again if position not in left]
        self.ranges.append(self._range(behind, max(through, behind.after)))
        self.moved |= through > behind.after or len(left) < len(behind.again)
        self.complete &= through >= min(behind.wanted, transcript.last_position) and not left

    def _take_context(self, behind: Behind, lines: Sequence[Line]) -> None:
        """The nearest lines before, in a share of the room that is left, so that what is new always finds some."""
        room = (self.max_tokens - self.tokens) // CONTEXT_SHARE
        nearest: list[tuple[Line, str]] = []
        for line in reversed(lines[max(0, len(lines) - self.context_lines) :]):
            if room <= LINE_TOKENS:
                break
            text = _cut(_readable(line), (room - LINE_TOKENS) * CHARS_PER_TOKEN)
            room -= estimated_tokens(text)
            nearest.append((line, text))
        for line, text in reversed(nearest):
            self._take(behind, line, text, context=True)

    def _take(self, behind: Behind, line: Line, text: str, *, context: bool) -> None:
        if not text:
            return
        asked = AskedLine(number=len(self.lines) + 1, role=line.role, text=text, said_at=line.said_at, context=context)
        self.lines.append(
            Numbered(asked=asked, session_uid=behind.session_uid, position=line.position, appended_at=line.appended_at)
        )
        self.tokens += estimated_tokens(text)
        self.evidence_lines += not context

    def _range(self, behind: Behind, through: int) -> Range:
        return Range(session_uid=behind.session_uid, session_id=behind.session_id, after=behind.after, through=through)

    @property
    def asked(self) -> list[AskedLine]:
        return [line.asked for line in self.lines]

    def check_progress(self) -> None:
        """Raises `LaneFailure` when nothing would move: the same empty batch would come for ever."""
        if not self.moved and not self.complete:
            raise LaneFailure("no progress: the session's next line cannot be read")

    def without_echoes(self, related: Iterable[RelatedEntry]) -> "Portion":
        """What memory itself said is context only: a fact must not become its own evidence."""
        statements = [_plain(entry.statement) for entry in related if not entry.retired and entry.statement]
        lines = [
            line.model_copy(update={"asked": line.asked.model_copy(update={"context": True})})
            if not line.asked.context and _is_echo(line.asked, statements)
            else line
            for line in self.lines
        ]
        return replace(self, lines=lines)


def _is_fresh(line: Line, behind: Behind) -> bool:
    """Whether a line is to be distilled now. One that a fork copied never is: it was, where it was said."""
    return not line.copied and (line.position > behind.after or line.position in behind.again)


def _readable(line: Line) -> str:
    """What is shown of a line: not what our tools put between marks."""
    return MARKED.sub(" ", line.text).strip()


def _cut(text: str, chars: int) -> str:
    """Visibly, in the middle."""
    return text if len(text) <= chars else f"{text[: chars // 2]} […] {text[-(chars // 2) :]}"


def _is_echo(line: AskedLine, statements: Sequence[str]) -> bool:
    """Whether a line quotes memory. A user who says one known thing again restates it, which is evidence."""
    text = _plain(line.text)
    quoted = sum(statement in text for statement in statements)
    return quoted >= (1 if line.role == "assistant" else 2) or (quoted == 1 and bool(HEADER.search(line.text)))


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def estimated_tokens(text: str) -> int:
    """About four characters a token; a bound for batches, not a bill."""
    return len(text) // CHARS_PER_TOKEN + LINE_TOKENS
