"""NVFlare as an engine: a controller and an executor that carry the sums of `secagg` between real hosts."""
