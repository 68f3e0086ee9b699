{{/* Where a component's pods run, and with which priority: (list . VALUES). */}}
{{- define "netdra.placement" -}}
{{- $root := index . 0 -}}
{{- $values := index . 1 -}}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
nodeSelector: {{ toJson (merge (dict "kubernetes.io/os" "linux") $values.nodeSelector) }}
{{- with $values.affinity }}
affinity: {{ toJson . }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
enableServiceLinks: false
{{- end -}}

{{/* Controller and webhook: one on each node if it can be. */}}
{{- define "netdra.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: {{ include "netdra.selector" . }}}
    matchLabelKeys: [pod-template-hash]
{{- end -}}

{{/* What a process that needs nothing of its node is held to: VALUES. */}}
{{- define "netdra.nobody" -}}
{{- $own := dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- mergeOverwrite $own .podSecurityContext | toJson -}}
{{- end -}}
{{- define "netdra.hardened" -}}
{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end -}}

{{/* The environment of every process, and what the values add to it: (list . VALUES). */}}
{{- define "netdra.environment" -}}
{{- $root := index . 0 -}}
- {name: NETDRA_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
- {name: NETDRA_NAME, value: {{ include "netdra.fullname" $root | quote }}}
- {name: NETDRA_LOG_FORMAT, value: {{ $root.Values.logFormat }}}
- {name: NETDRA_LOG_LEVEL, value: {{ $root.Values.logLevel }}}
{{- range (index . 1).extraEnv }}
- {{ toJson . }}
{{- end }}
{{- end -}}

{{/* The volumes and mounts that the values add to a component's: VALUES. */}}
{{- define "netdra.volumes" -}}
{{- range .extraVolumes }}
- {{ toJson . }}
{{- end }}
{{- end -}}
{{- define "netdra.volumeMounts" -}}
{{- range .extraVolumeMounts }}
- {{ toJson . }}
{{- end }}
{{- end -}}
