"""Pointer-generator network with coverage (See et al., ACL 2017, arXiv 1704.04368).

`module.py` is the LightningModule (loss, decoding, rows of the ablation table), `network.py` the encoder and the
attentional decoder. Decoding and copying (`lightning_modules/copying_summarizer.py`, `networks/copying.py`) are shared
with the communicating agents.
"""
