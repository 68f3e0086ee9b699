#!/bin/sh
# Makes the reservations of a PodNetwork those that an external IPAM lists: lines of ADDRESS,NAMESPACE,NAME on stdin, all of them.
# Server-side apply removes the reservations that this field manager applied before and that are not listed any more;
# reservations of others stay.
#
#   reserve.sh NETWORK < reservations.csv
set -eu
network=$1
{
  printf 'apiVersion: networking.dra.io/v1alpha1\nkind: PodNetwork\nmetadata: {name: "%s"}\nspec:\n  reservations:\n' "$network"
  while IFS=, read -r address namespace name; do
    printf '  - {address: "%s", namespace: "%s", name: "%s"}\n' "$address" "$namespace" "$name"
  done
} | ${KUBECTL:-kubectl} apply --server-side --field-manager=external-ipam -f -
