"""Pictures of trees: a scene of lines and words, as SVG by itself, as PNG or PDF by matplotlib.

scene      what every picture is made of
layouts    a tree's scene: rectangular or circular
svg        a scene as SVG
figure     a scene as PNG or PDF (the only module that knows matplotlib)
"""
