"""The ports of claims' VFs in Neutron: wanted, made, compared, and deleted with their claims."""
