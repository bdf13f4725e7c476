"""Methods that stand on other packages or learn first: DiCE, C-CHVAE, tabular diffusion."""
