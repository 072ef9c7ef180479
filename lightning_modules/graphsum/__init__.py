"""GraphSum (Li et al., ACL 2020, arXiv 2005.10043) and the Hierarchical Transformer (Liu and Lapata, ACL 2019).

`module.py` is the LightningModule, `encoder.py` the paragraph encoder, `decoder.py` the hierarchical decoder,
`graph_attention.py` attention with a Gaussian bias from the paragraph graph.
"""
