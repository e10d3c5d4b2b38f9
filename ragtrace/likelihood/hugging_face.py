"""Scores texts with a causal language model of transformers: what stands before several texts is read once."""

from __future__ import annotations

import copy
import inspect
import io
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ragtrace.errors import ModelError, UsageError
from ragtrace.likelihood.scorer import Passage, TokenLikelihoods

if TYPE_CHECKING:
    import torch

ROWS = 256
"""Tokens whose distribution over the vocabulary is held at a time."""


class _Work(NamedTuple):
    """A passage as token ids: ``tail`` is fed after ``head``, and its last ``scored`` tokens are looked at."""

    at: int
    head: tuple[int, ...]
    tail: tuple[int, ...]
    scored: int
    moments: bool
    note: str | None


class TransformersScorer:
    """The prefix and the text are tokenised apart, so that a text has the same tokens whatever stands before it.

    Where the tokenizer has a chat template, the prefix is one user message in it and the text begins the assistant's
    turn; a text without prefix stands bare. The first token of a text with nothing before it is not scored, unless
    the tokenizer puts a token of its own at the beginning. What does not fit into the window is cut from the left of
    the prefix, with a note.

    :param name: stands beside the numbers. :param chat: ``False`` puts a blank line between prefix and text instead
        of the template; ``None`` uses the template where there is one.
    :param batch_size: texts at a time, at least 1; fewer where they are long. :param window: tokens the model reads
        at most; ``None``: what its configuration says.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        name: str,
        *,
        chat: bool | None = None,
        batch_size: int = 8,
        window: int | None = None,
    ) -> None:
        if batch_size < 1:
            raise UsageError(f"batch_size is {batch_size}; expected at least 1 text at a time")
        templated = bool(getattr(tokenizer, "chat_template", None))
        if chat and not templated:
            raise UsageError(f"the tokenizer of {name} has no chat template; expected one: leave chat out")
        self.model, self.tokenizer = model.eval(), tokenizer
        self.chat = templated if chat is None else chat
        self.name = f"{name}{'+chat' if self.chat else ''}"
        self.batch_size = batch_size
        self.window = window or getattr(model.config, "max_position_embeddings", None) or 2048
        if self.window < 2:
            raise UsageError(f"window is {self.window}; expected at least 2 tokens")
        self._takes = inspect.signature(model.forward).parameters
        start = tokenizer("a").input_ids[:1]
        self._bos = tuple(start) if start and start[0] == tokenizer.bos_token_id else ()

    @classmethod
    def load(cls, model: str | Path | None = None, **options: Any) -> TransformersScorer:
        """A model by its Hugging Face id, folder or GGUF file; ``None`` is the embedded SmolLM2-135M-Instruct.

        Weights are read as float32. ``options`` are those of the class.

        :raises UsageError: the extra ``audit`` is not installed. :raises ModelError: no such model.
        """
        from ragtrace import embedded

        path = embedded.weights() if model is None else Path(model)
        gguf = path.suffix == ".gguf"
        told = {"gguf_file": path.name} if gguf else {}
        where = str(path.parent) if gguf else str(model)
        try:
            import torch
            from transformers import AutoModelForCausalLM, AutoTokenizer

            with redirect_stderr(io.StringIO()):  # progress bars that no switch turns off
                tokenizer = AutoTokenizer.from_pretrained(where, **told)
                loaded = AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32, **told)
        except ImportError as error:
            raise UsageError(
                f"scoring likelihoods needs transformers with torch, gguf and accelerate ({error}); "
                'install them with: pip install "ragtrace-audit[audit]"'
            ) from error
        except (OSError, ValueError, KeyError) as error:
            raise ModelError(
                f"cannot load {str(model or path)!r} as a causal model ({' '.join(str(error).split())[:300]}); "
                "expected a Hugging Face id, a folder that save_pretrained made, or a GGUF file"
            ) from error
        return cls(loaded, tokenizer, path.stem if gguf else where, **options)

    def score(self, passages: Sequence[Passage | tuple[str, str]]) -> list[TokenLikelihoods]:
        """The likelihoods of each passage's text, in order."""
        import torch

        results: dict[int, TokenLikelihoods] = {}
        groups: defaultdict[tuple[int, ...], list[_Work]] = defaultdict(list)
        for at, passage in enumerate(passages):
            work = self._work(at, Passage(*passage))
            if work.scored < 1:
                results[at] = TokenLikelihoods(note=work.note)
            else:
                groups[work.head].append(work)
        alone = [w._replace(head=(), tail=w.head + w.tail) for g in groups.values() if len(g) == 1 for w in g]
        with torch.inference_mode():
            self._read((), alone, results)
            for head, group in groups.items():
                if len(group) > 1:
                    self._read(head, group, results)
        return [results[i] for i in range(len(passages))]

    # --- tokens -------------------------------------------------------------------------------------------------------

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(text, add_special_tokens=False).input_ids) if text else ()

    def _head(self, prefix: str) -> tuple[int, ...]:
        if not prefix.strip():
            return self._bos
        if not self.chat:
            return self._bos + self._ids(prefix.rstrip() + "\n\n")
        asked = [{"role": "user", "content": prefix}]
        return self._ids(self.tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True))

    def _work(self, at: int, passage: Passage) -> _Work:
        text = self._ids(passage.text) if passage.text.strip() else ()
        head = self._head(passage.prefix)
        lead = self._ids(passage.lead.rstrip() + "\n\n") if passage.lead.strip() else ()
        if not passage.prefix.strip():  # many texts may have the same lead, as they may have the same prefix
            head, lead = head + lead, ()
        before = len(head) + len(lead)
        if why := self._unscorable(len(text), before):
            return _Work(at, (), (), 0, False, f"nothing to score: {why}")
        note = None
        if (over := before + len(text) - self.window) > 0:
            note = f"{over} of {before} tokens before the text cut from the left: window {self.window}"
            head, lead = head[over:], lead[max(0, over - len(head)) :]
        scored = len(text) - (not before)
        return _Work(at, head, lead + text, scored, passage.moments, note)

    def _unscorable(self, tokens: int, before: int) -> str | None:
        if not tokens:
            return "the text has no tokens"
        if tokens + (before > 0) > self.window:
            return f"the text has {tokens} tokens, the model's window {self.window}"
        return "the text is one token, with nothing before it" if tokens + before < 2 else None

    # --- the model ----------------------------------------------------------------------------------------------------

    def _read(self, head: tuple[int, ...], group: list[_Work], results: dict[int, TokenLikelihoods]) -> None:
        """Scores a group of works that have ``head`` in common, the longest first."""
        cache, last = self._cached(head) if head else (None, None)
        if head and cache is None:  # a model whose state cannot be shared
            head, group = (), [w._replace(tail=head + w.tail) for w in group]
        for batch in self._batches(sorted(group, key=lambda w: -len(w.tail)), len(head)):
            for work, found in zip(batch, self._batch(batch, cache, last, len(head)), strict=True):
                results[work.at] = found

    def _batches(self, works: list[_Work], head: int) -> Iterator[list[_Work]]:
        while works:
            # the state of what was read is held for each row
            count = min(self.batch_size, max(1, 8192 // (head + len(works[0].tail))))
            yield works[:count]
            works = works[count:]

    def _cached(self, head: tuple[int, ...]) -> tuple[Any, Any]:
        """(The model's state after ``head``, its logits there); the state is ``None`` where it cannot be copied."""
        import torch
        from transformers.cache_utils import DynamicCache, DynamicLayer

        out = self._forward(torch.tensor([head]), use_cache=True, keep=torch.tensor([len(head) - 1]))
        state = out["cache"] if "cache" in out else out.get("past_key_values")
        # a layer that forgets, or a recurrent one, is not continued by simply adding to it
        if not isinstance(state, DynamicCache) or any(type(layer) is not DynamicLayer for layer in state.layers):
            return None, None
        return state, out.logits[:, -1:]

    def _forward(self, ids: torch.Tensor, keep: torch.Tensor, cache: Any = None, **told: Any) -> Any:
        if cache is not None:
            told["cache" if "cache" in self._takes else "past_key_values"] = cache
        whole = "logits_to_keep" not in self._takes
        if not whole:
            told["logits_to_keep"] = keep.to(self.model.device)
        out = self.model(ids.to(self.model.device), **told)
        if whole:
            out.logits = out.logits[:, keep]
        return out

    def _batch(self, batch: list[_Work], cache: Any, last: Any, head: int) -> list[TokenLikelihoods]:
        """Right-padded: what a causal model says of a token never depends on the padding after it."""
        import torch

        longest = max(len(w.tail) for w in batch)
        # logits at i are of token i + 1; those of the first token, where there is a head, are `last`
        first = min(len(w.tail) - w.scored for w in batch)
        keep = torch.arange(max(first - 1, 0), max(longest - 1, 1))
        ids = torch.tensor([w.tail + (0,) * (longest - len(w.tail)) for w in batch])
        told: dict[str, Any] = {"use_cache": cache is not None}
        if cache is not None:
            told["cache"] = copy.deepcopy(cache)
            told["cache"].batch_repeat_interleave(len(batch))
        logits = self._forward(ids, keep, **told).logits
        found = []
        for row, work in enumerate(batch):
            start = len(work.tail) - work.scored
            rows = [logits[row, max(start - 1, 0) - int(keep[0]) : len(work.tail) - 1 - int(keep[0])]]
            if start == 0:
                rows.insert(0, last[0])
            found.append(_likelihoods(torch.cat(rows), ids[row, start : len(work.tail)], work))
        return found


def _likelihoods(logits: torch.Tensor, tokens: torch.Tensor, work: _Work) -> TokenLikelihoods:
    """``logits`` (tokens, vocabulary) at the places before ``tokens``."""
    import torch

    chosen, means, deviations = [], [], []
    for start in range(0, len(logits), ROWS):
        logp = torch.log_softmax(logits[start : start + ROWS].float(), -1)
        ids = tokens[start : start + ROWS].to(logits.device)
        chosen += logp.gather(1, ids[:, None])[:, 0].tolist()
        if work.moments:
            p = logp.exp()
            finite = logp.clamp_min(-1e4)  # of a token that cannot come: 0 × -∞ would be no number
            mean = (p * finite).sum(-1, keepdim=True)
            means += mean[:, 0].tolist()
            deviations += (p * (finite - mean) ** 2).sum(-1).sqrt().tolist()
    if not all(map(math.isfinite, (*chosen, *means, *deviations))):
        return TokenLikelihoods(note="nothing to score: the model gives log-probabilities that are no numbers")
    return TokenLikelihoods(tuple(chosen), tuple(means), tuple(deviations), work.note)
