"""Experts partly in host memory or on a drive: a cache on the GPU, a link, and what is fetched ahead."""
