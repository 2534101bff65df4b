"""The pages: HTTP in, one call into the domain, HTML out."""
