"""A run as one page of HTML: everything is in the file, nothing is fetched, ever.

facts        what a run's events tell
charts       the pieces that charts are made of, as SVG
run_charts   lnL over time, starts, where time went
data_charts  frequencies, gaps and composition of an alignment
model_charts exchangeabilities, frequencies and rate categories of a model
sections     the sections of the page
document     the whole file
tree.js      a tree to look at: reading, rooting, ordering, layouts (no browser in it)
view.js      its drawing, and what pointers and keys do
controls.js  the buttons around it
page.css     how it all looks, by day, by night and on paper

Charts are drawn here, not by the reader's browser: they are there without scripts, and on paper.
"""
