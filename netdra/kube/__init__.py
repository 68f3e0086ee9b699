"""The API server: requests, a copy of its objects that is kept current, leader election, events, what it can do.

`kubeconfig` finds the server, `auth` says who we are to it, `connection` carries requests · `client` makes them ·
`resources` says what can be asked for · `watch`, `store`, `reflector` keep a copy · `leader` elects one of several ·
`events` tells users · `features` finds out which fields the server takes. All of it is asyncio; nothing here knows what
netdra does with the objects.
"""
