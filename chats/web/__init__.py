"""Page views: parse the request, call the domain once, render HTML."""
