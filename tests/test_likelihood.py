"""Token log-probabilities: against transformers' own logits, however texts are batched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ragtrace.errors import ModelError, UsageError
from ragtrace.likelihood import Passage, TokenLikelihoods, TransformersScorer

WORDS = "the red house stands on a hill near old mill it was built long ago by two brothers who sold corn".split()
CHAT = (
    "{% for m in messages %}the {{ m['role'] }} : {{ m['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}answer :{% endif %}"
)


def tokenizer(bos: bool = False, chat: bool = False) -> Any:
    vocabulary = {w: i for i, w in enumerate(["<unk>", "<s>", *WORDS])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    if bos:
        from tokenizers.processors import TemplateProcessing

        made.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", bos_token="<s>", chat_template=CHAT if chat else None
    )


def llama(**changes: Any) -> Any:
    torch.manual_seed(3)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(
        vocab_size=len(WORDS) + 2, num_key_value_heads=2, initializer_range=0.25, max_position_embeddings=64,
        **sizes | changes,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def scorer(**options: Any) -> TransformersScorer:
    told = {"bos": options.pop("bos", False), "chat": options.pop("templated", False)}
    return TransformersScorer(options.pop("model", None) or llama(), tokenizer(**told), "tiny", **options)


def independent(model: Any, ids: list[int], scored: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-probabilities, means and deviations of the last ``scored`` tokens: one whole pass, softmax in float64."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].double().numpy()
    chosen, mu, sigma = [], [], []
    for place in range(len(ids) - scored, len(ids)):
        z = logits[place - 1]
        logp = z - z.max() - np.log(np.exp(z - z.max()).sum())
        p = np.exp(logp)
        chosen.append(logp[ids[place]])
        mu.append((p * logp).sum())
        sigma.append(np.sqrt((p * logp**2).sum() - (p * logp).sum() ** 2))
    return np.array(chosen), np.array(mu), np.array(sigma)


def same(found: TokenLikelihoods, expected: tuple[np.ndarray, np.ndarray, np.ndarray], tolerance: float = 1e-5) -> None:
    for have, want in zip((found.logprobs, found.mu, found.sigma), expected, strict=True):
        np.testing.assert_allclose(have, want, rtol=tolerance, atol=tolerance)


TEXTS = ["the red house", "two brothers sold corn near the old mill", "hill on a hill", "it was built long ago by who"]
PROMPT = "who built the red house ? the red house stands on a hill"


@pytest.mark.parametrize("bos", [False, True])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_against_the_models_own_logits(bos: bool, batch_size: int) -> None:
    model = llama()
    ids = tokenizer()
    mine = scorer(model=model, bos=bos, batch_size=batch_size)
    passages = [Passage(PROMPT, t) for t in TEXTS] + [Passage("", t) for t in TEXTS]
    passages += [Passage(PROMPT, TEXTS[0], "long ago"), Passage("", TEXTS[0], "long ago"), Passage("a hill", TEXTS[1])]
    for passage, found in zip(passages, mine.score(passages), strict=True):
        text = ids(passage.text).input_ids
        before = [1] * bos + ids(passage.prefix).input_ids + ids(passage.lead).input_ids
        same(found, independent(model, before + text, len(text) if before else len(text) - 1))
        assert found.note is None


def test_the_prompt_goes_through_the_chat_template() -> None:
    model = llama()
    mine = scorer(model=model, templated=True)
    ids = tokenizer()
    assert (mine.name, scorer(templated=True, chat=False).name) == ("tiny+chat", "tiny")
    (found, bare) = mine.score([Passage("a hill", TEXTS[0]), Passage("", TEXTS[0])])
    before = ids("the user : a hill answer :").input_ids
    text = ids(TEXTS[0]).input_ids
    same(found, independent(model, before + text, len(text)))
    same(bare, independent(model, text, len(text) - 1))


@pytest.mark.parametrize(
    "model",
    [
        lambda: GPT2LMHeadModel(GPT2Config(vocab_size=len(WORDS) + 2, n_positions=64, n_embd=32, n_layer=2, n_head=4)),
        lambda: _sliding(),
        lambda: _whole(llama()),
    ],
    ids=["gpt2", "a window that slides", "all logits"],
)
def test_other_models(model: Any) -> None:
    torch.manual_seed(5)
    made = model().eval()
    ids = tokenizer()
    passages = [Passage(PROMPT, t) for t in TEXTS]
    for passage, found in zip(passages, scorer(model=made).score(passages), strict=True):
        text = ids(passage.text).input_ids
        same(found, independent(made, ids(PROMPT).input_ids + text, len(text)))


def _sliding() -> Any:
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(
        vocab_size=len(WORDS) + 2, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, sliding_window=4, max_position_embeddings=64, initializer_range=0.25,
    )  # fmt: skip
    return MistralForCausalLM(config)


def _whole(model: Any) -> Any:
    """A model that cannot be asked for some of the logits only."""
    plain = type(model).forward

    def forward(self: Any, input_ids: Any, use_cache: bool = True, cache: Any = None) -> Any:
        return plain(self, input_ids, use_cache=use_cache, cache=cache)

    made = type("Whole", (type(model),), {"forward": forward})
    model.__class__ = made
    return model


def test_batching_changes_nothing() -> None:
    model = llama()
    rng = np.random.default_rng(0)
    passages = [
        Passage(prefix, " ".join(rng.choice(WORDS, rng.integers(1, 15))), lead)
        for prefix in ("", PROMPT, "a hill")
        for lead in ("", "long ago by two")
        for _ in range(9)
    ]
    alone = [scorer(model=model).score([p])[0] for p in passages]
    for batch_size in (1, 2, 7, 64):
        together = scorer(model=model, batch_size=batch_size).score(passages)
        backwards = scorer(model=model, batch_size=batch_size).score(passages[::-1])[::-1]
        for one, a, b in zip(alone, together, backwards, strict=True):
            assert one.note == a.note == b.note
            for name in ("logprobs", "mu", "sigma"):
                np.testing.assert_allclose(getattr(a, name), getattr(one, name), rtol=0, atol=1e-5)
                np.testing.assert_allclose(getattr(b, name), getattr(one, name), rtol=0, atol=1e-5)


def test_a_prefix_is_read_once() -> None:
    model = llama()
    read: list[tuple[int, ...]] = []
    plain = model.forward

    def forward(input_ids: Any, **told: Any) -> Any:
        read.append(tuple(input_ids.shape))
        return plain(input_ids, **told)

    mine = scorer(model=model)
    model.forward = forward
    mine.score([Passage(PROMPT, t, moments=False) for t in TEXTS])
    assert read == [(1, len(tokenizer()(PROMPT).input_ids)), (4, 8)]


def test_moments_only_where_wanted() -> None:
    plain, with_moments = scorer().score([Passage("", TEXTS[0], moments=False), Passage("", TEXTS[0])])
    assert plain.logprobs == with_moments.logprobs and plain.mu == plain.sigma == ()
    assert len(with_moments.mu) == len(with_moments.sigma) == 2


def test_a_prompt_longer_than_the_window_is_cut_from_the_left() -> None:
    model = llama()
    ids = tokenizer()
    before, text = ids(PROMPT).input_ids, ids(TEXTS[1]).input_ids
    found, short = scorer(model=model, window=12).score([Passage(PROMPT, TEXTS[1]), Passage("a hill", TEXTS[1])])
    same(found, independent(model, before[-4:] + text, len(text)))
    assert found.note == f"{len(before) - 4} of {len(before)} tokens before the text cut from the left: window 12"
    assert short.note is None
    # the lead is nearer to the text than the prompt
    (both,) = scorer(model=model, window=12).score([Passage(PROMPT, TEXTS[1], "long ago")])
    same(both, independent(model, before[-2:] + ids("long ago").input_ids + text, len(text)))
    (rest,) = scorer(model=model, window=9).score([Passage(PROMPT, TEXTS[1], "long ago")])
    same(rest, independent(model, ids("ago").input_ids + text, len(text)))
    assert scorer(model=model).window == 64


def test_texts_that_give_nothing() -> None:
    empty, blank, one, too_long, fits = scorer(window=6).score(
        [Passage(PROMPT, ""), Passage("", " \n"), Passage("", "hill"), Passage("a", TEXTS[1]), Passage("a", "hill")]
    )
    assert empty.logprobs == blank.logprobs == one.logprobs == too_long.logprobs == ()
    assert empty.note == blank.note == "nothing to score: the text has no tokens"
    assert one.note == "nothing to score: the text is one token, with nothing before it"
    assert too_long.note == "nothing to score: the text has 8 tokens, the model's window 6"
    assert len(fits.logprobs) == 1 and fits.note is None
    assert scorer().score([]) == []


def test_a_model_without_numbers() -> None:
    model = llama()
    with torch.no_grad():
        model.lm_head.weight[5] = float("nan")
    (found,) = scorer(model=model).score([("a hill", TEXTS[0])])
    assert found == TokenLikelihoods(note="nothing to score: the model gives log-probabilities that are no numbers")


def test_tokens_that_cannot_come_are_no_trouble() -> None:
    class Banned(LlamaForCausalLM):
        def forward(self, *args: Any, logits_to_keep: Any = 0, **told: Any) -> Any:
            out = super().forward(*args, logits_to_keep=logits_to_keep, **told)
            out.logits[..., 0] = -torch.inf
            return out

    model = llama()
    (want,) = scorer(model=model).score([Passage("a hill", TEXTS[0])])
    model.__class__ = Banned
    (found,) = scorer(model=model).score([Passage("a hill", TEXTS[0])])
    assert np.isfinite([*found.logprobs, *found.mu, *found.sigma]).all()
    assert np.exp(found.logprobs).sum() > np.exp(want.logprobs).sum()


def test_wrong_use(tmp_path: Any) -> None:
    with pytest.raises(UsageError, match="batch_size is 0; expected at least 1"):
        scorer(batch_size=0)
    with pytest.raises(UsageError, match="window is 1; expected at least 2"):
        scorer(window=1)
    with pytest.raises(UsageError, match="no chat template"):
        scorer(chat=True)
    with pytest.raises(ModelError, match="expected a Hugging Face id, a folder that save_pretrained made"):
        TransformersScorer.load(tmp_path)


def test_a_model_that_was_saved(tmp_path: Any, capfd: pytest.CaptureFixture[str]) -> None:
    model = llama()
    model.save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    capfd.readouterr()
    loaded = TransformersScorer.load(tmp_path, batch_size=2)
    assert capfd.readouterr().err == "" and loaded.name == str(tmp_path)
    assert loaded.score([("a hill", t) for t in TEXTS]) == scorer(model=model, batch_size=2).score(
        [("a hill", t) for t in TEXTS]
    )


@pytest.fixture(scope="module")
def smollm2() -> Iterator[TransformersScorer]:
    yield TransformersScorer.load()


@pytest.mark.model
def test_the_embedded_model(smollm2: TransformersScorer) -> None:
    texts = [
        "The red house stands on the hill. It was built in 1921 by two brothers.",
        "Jeanne wrote to ops-4471@example.org about invoice 88-213, which nobody paid.",
        "Zebras graze where the grass is short; lions know it, and wait.",
    ]
    prompt = f"Answer from the context.\n\n{texts[0]}\n\nWho built the house?"
    chat = smollm2.tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, return_dict=True
    ).input_ids
    found = smollm2.score([Passage(prompt, t) for t in texts] + [Passage("", t) for t in texts])
    single = [smollm2.score([Passage(prompt, t)])[0] for t in texts]
    for i, text in enumerate(texts):
        ids = smollm2.tokenizer(text, add_special_tokens=False).input_ids
        same(found[i], independent(smollm2.model, chat + ids, len(ids)))
        same(single[i], independent(smollm2.model, chat + ids, len(ids)))
        same(found[3 + i], independent(smollm2.model, ids, len(ids) - 1))
        assert abs(np.mean(found[i].logprobs) - np.mean(single[i].logprobs)) < 1e-5
    assert smollm2.name == "SmolLM2-135M-Instruct.Q4_1+chat"
    # the text that stands in the prompt is the one that became likelier by far
    gains = [np.mean(found[i].logprobs) - np.mean(found[3 + i].logprobs) for i in range(3)]
    assert gains[0] > 1 > max(gains[1:])
