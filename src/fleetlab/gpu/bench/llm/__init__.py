"""A language model that serves many requests at once: decoder with a KV cache, scheduler, and request lengths.

`model` computes, `engine` decides which tokens are computed in each iteration, `trace` has the lengths and arrivals
of real requests. The suite runs the engine inside a tenant, and the HTTP server behind `/v1/completions`.
"""
