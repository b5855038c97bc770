"""A step as oomcast sees it beside what the framework itself allocates for it on this machine's CPU."""
