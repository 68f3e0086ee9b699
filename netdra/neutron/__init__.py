"""A client of Neutron, OpenStack's networking service: the login, the requests, the meaning of the answers.

No node talks to Neutron (decision D49). `clouds` reads the login, `answers` has the bodies of requests and the
meaning of answers, `marks` recognises ports, `networks` and `client` send requests, and only `session` speaks HTTP.
"""
