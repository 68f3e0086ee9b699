#!/bin/sh
# Prints the uses of all PodNetworks' addresses as the API server reports them, the present ones first, then each change:
# EVENT NETWORK ADDRESS NAMESPACE OWNER STATE. A change of an address that exists is MODIFIED, its end DELETED.
set -eu
state='{{if .spec.claim}}used{{else if .spec.lease}}lease{{else if .spec.conflictSince}}conflict{{else}}kept{{end}}'
owner='{{.spec.owner.namespace}} {{if .spec.owner.pod}}{{.spec.owner.pod}}{{else}}{{.spec.owner.claim}}{{end}}'
exec ${KUBECTL:-kubectl} get podaddresses --watch --output-watch-events -o \
  go-template="{{.type}} {{with .object}}{{.spec.network}} {{.spec.address}} $owner $state{{end}}{{\"\\n\"}}"
