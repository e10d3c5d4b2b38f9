"""Parts of LlamaIndex apps: postprocessors, query transforms, synthesizers. ``TRUTH`` is checked by running them."""

from __future__ import annotations

import copy
import re
from typing import List, Optional

from llama_index.core.indices.query.query_transform.base import BaseQueryTransform
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.response_synthesizers import CompactAndRefine
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode

EMAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+")


class MaskNodes(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None) -> List[NodeWithScore]:
        for n in nodes:
            n.node.set_content(EMAIL.sub("[EMAIL]", n.node.get_content()))
        return nodes


class MaskNodesText(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes, query_bundle=None):
        for n in nodes:
            n.node.text = EMAIL.sub("[EMAIL]", n.text)
        return nodes


class NewNodes(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes, query_bundle=None):
        result = []
        for nws in nodes:
            clean = EMAIL.sub("", nws.node.get_content(metadata_mode=MetadataMode.NONE))
            result.append(NodeWithScore(node=TextNode(text=clean, id_=nws.node.node_id), score=nws.score))
        return result


class EditsDeepCopies(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes, query_bundle=None):
        for nws in nodes:
            node = copy.deepcopy(nws.node)
            node.set_content(EMAIL.sub("", node.get_content()))
        return nodes


class WrapsTheSame(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes, query_bundle=None):
        return [NodeWithScore(node=n.node, score=n.score) for n in nodes]


class NoisyScores(BaseNodePostprocessor):
    epsilon: float = 1.0

    def _postprocess_nodes(self, nodes, query_bundle=None):
        import random

        rng = random.Random(7)
        for n in nodes:
            n.score = (n.score or 0.0) + rng.gauss(0, 1 / self.epsilon)
        return sorted(nodes, key=lambda n: n.score, reverse=True)


class KeepBest(BaseNodePostprocessor):
    k: int = 2

    def _postprocess_nodes(self, nodes, query_bundle=None):
        nodes = sorted(nodes, key=lambda n: n.score or 0, reverse=True)
        return nodes[: self.k]


class SortsAndLoses(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes, query_bundle=None):
        ranked = sorted(nodes, key=lambda n: n.score or 0)
        top = ranked[:2]
        return nodes


class NotYet(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes, query_bundle=None):
        raise NotImplementedError("PII removal is planned")


class Passes(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes, query_bundle=None):
        return [n for n in nodes]


class StricterCutoff(SimilarityPostprocessor):
    """Keeps the parent's behaviour, another default."""

    similarity_cutoff: float = 0.7


class OptionalMask(BaseNodePostprocessor):
    mask: bool = False

    def _postprocess_nodes(self, nodes, query_bundle=None):
        if self.mask:
            for n in nodes:
                n.node.set_content("[hidden]")
        return nodes


class RewriteQuery(BaseQueryTransform):
    def _get_prompts(self):
        return {}

    def _update_prompts(self, prompts):
        pass

    def _run(self, query_bundle: QueryBundle, metadata) -> QueryBundle:
        return QueryBundle(query_str=EMAIL.sub("somebody", query_bundle.query_str))


class SameQuery(BaseQueryTransform):
    def _get_prompts(self):
        return {}

    def _update_prompts(self, prompts):
        pass

    def _run(self, query_bundle, metadata):
        return query_bundle


class QueryRebuilt(BaseQueryTransform):
    def _get_prompts(self):
        return {}

    def _update_prompts(self, prompts):
        pass

    def _run(self, query_bundle, metadata):
        query_str = query_bundle.query_str
        new_query = query_str.replace("@", " at ")
        return QueryBundle(query_str=query_str)


class MaskedAnswer(CompactAndRefine):
    def get_response(self, query_str, text_chunks, prev_response=None, **response_kwargs):
        response = super().get_response(query_str, text_chunks, prev_response, **response_kwargs)
        return EMAIL.sub("[EMAIL]", str(response))


class MaskedAnswerLater(CompactAndRefine):
    def get_response(self, query_str, text_chunks, prev_response=None, **response_kwargs):
        response = super().get_response(query_str, text_chunks, prev_response, **response_kwargs)
        # TODO: mask
        return response


TRUTH = {
    "MaskNodes": {"content": "active"},
    "MaskNodesText": {"content": "active"},
    "NewNodes": {"content": "active"},
    "EditsDeepCopies": {"content": "dead"},
    "WrapsTheSame": {"content": "pass_through"},
    "NoisyScores": {"retrieval": "active"},
    "KeepBest": {"retrieval": "active"},
    "SortsAndLoses": {"retrieval": "dead"},
    "NotYet": {"content": "stub"},
    "Passes": {"content": "pass_through"},
    "StricterCutoff": {"retrieval": "conditional"},
    "OptionalMask": {"content": "dead"},
    "RewriteQuery": {"query": "active"},
    "SameQuery": {"query": "pass_through"},
    "QueryRebuilt": {"query": "dead"},
    "MaskedAnswer": {"response": "active"},
    "MaskedAnswerLater": {"response": "stub"},
}
