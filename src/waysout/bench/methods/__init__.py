"""Methods that stand on other packages or learn first: DiCE, NICE, MOC, C-CHVAE,
tabular diffusion.
"""
