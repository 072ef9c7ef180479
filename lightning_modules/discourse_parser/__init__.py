"""RST parsing: from text to EDUs, trees and labeled discourse distributions (LDDs).

`segmenter.py` and `parser.py` are LightningModules. `chart.py` holds the inside-outside recursions,
`discourse_charts.py` the labeled chart, `ldd.py` the distributions that RSTformer reads.
"""
