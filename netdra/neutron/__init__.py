"""A client of Neutron, OpenStack's networking service: who logs in, what is asked, what the answers mean.

No node talks to Neutron (decision D49). `clouds` reads who logs in, `answers` states what is sent and what an answer
means, `marks` how ports are known again, `networks` and `client` ask, `session` is the only one that speaks HTTP.
"""
