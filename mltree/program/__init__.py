"""Programs: the likelihood operations of one launch, what they mean, and who runs them."""
