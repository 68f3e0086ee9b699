"""The API server: requests, a copy of its objects that is kept current, leader election, events, its features.

`kubeconfig` finds the server, `auth` has our credentials, `connection` carries requests · `client` makes them ·
`resources` lists the kinds · `watch`, `store`, `reflector` keep a copy · `queue` and `backoff` repeat work · `leader`
elects one of several · `events` writes events · `features` finds out which fields the server takes · `health` has
checks. All of it is asyncio; nothing here knows what netdra does with the objects.
"""
