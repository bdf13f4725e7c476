"""The engine behind ``transformers:``, in a process of its own: many replies in one batch.

`work` is that process, and `process` the way to it. `load` brings a model in, `probe` makes sure
that it can be run here, `model` keeps what it has read in a fixed place for every slot, `attention`
looks there, `slots` lets requests join and leave, `sampling` draws tokens.
"""
