"""The engine behind ``transformers:``, in a process of its own: many replies in one batch.

    process    starts the engine's process, and the messages to and from it
    engine     that process: requests in, replies out
    load       loads a model, and decides how many slots fit
    probe      checks that a model gives its own scores here
    scheduler  requests join and leave a batch of slots; tokens are drawn
    sampling   what shapes the draw beside the temperature
    model      one forward pass over a KV cache with a fixed place for every slot
    attention  how tokens attend to that cache
    chat       conversations to tokens and back

transformers loads and runs the layers; attention, cache and scheduling are ours, through its own
interfaces for both. So any architecture with plain or sliding attention works.
"""
