"""Parts of `bench` and `docs`, the subcommands that need a checkout."""
