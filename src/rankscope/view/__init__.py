"""The viewer: a local, read-only server of stored runs, and the page that draws them."""
