"""What answers over HTTP. `holdfast serve` starts it; what it needs comes with `pip install 'holdfast[service]'`.

fast_path      a store in which nothing can be done but what the compactor may do
notifications  what was notified and waits to be folded
worker         one thread per domain that folds
compactor      the service without HTTP
tokens         who may call
answers        what an error is over HTTP
metrics        what was done, as numbers
exposition     numbers for Prometheus
gate           what comes before every address
routes         the addresses
process        a socket, signals, and log lines
"""
