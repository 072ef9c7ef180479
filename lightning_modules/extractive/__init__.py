"""Extractive summarization: BertSum (Liu and Lapata, 2019), MatchSum (Zhong et al., 2020) and models without training.

`bertsum.py` and `matchsum.py` are LightningModules, `zero_shot.py` and `baselines.py` need no training.
`sentence_network.py` computes sentence vectors and scores, `scoring.py` holds poolers and scorers, `selection.py`
chooses sentences (top-k, trigram blocking, MMR, triangle), `summary.py` builds the summary of the selected sentences.
"""
