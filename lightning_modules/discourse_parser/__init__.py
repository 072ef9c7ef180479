"""RST parsing: from text to EDUs, trees and labelled discourse distributions (LDDs).

`segmenter.py` and `parser.py` are LightningModules. `chart.py` holds the inside-outside recursions,
`discourse_charts.py` the labelled chart, `ldd.py` the distributions that RSTformer reads.
"""
