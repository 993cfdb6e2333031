"""The replays: how a trace meets the caches.

    order.pyx   the order loop: one request after another (compiled)
    plan.py     a configuration with every name and number resolved
    engine.py   builds the loop from a plan and drives it over a trace

(The package is not called ``replay`` because :func:`kvbench.replay` is.)
"""
