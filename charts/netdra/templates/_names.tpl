{{/* What all of netdra's objects are called: the release's name, with netdra in it. Short enough for every suffix. */}}
{{- define "netdra.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- /* A release's name may have dots, those of Services and accounts in admission policies not. */ -}}
{{- $release := .Release.Name | replace "." "-" -}}
{{- if contains "netdra" $release -}}
{{- $release | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-netdra" ($release | trunc 33 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The namespace of netdra's objects. */}}
{{- define "netdra.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{/* The service account of a component: (list . COMPONENT). Admission policies name it, so no two components may share one. */}}
{{- define "netdra.account" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- (index $root.Values $component).serviceAccountName | default (printf "%s-%s" (include "netdra.fullname" $root) $component) -}}
{{- end -}}

{{/* What a component's pods are chosen by. Never changes: a Deployment's selector cannot. */}}
{{- define "netdra.selector" -}}
{{- $root := index . 0 -}}
{{- dict "app.kubernetes.io/name" "netdra" "app.kubernetes.io/instance" $root.Release.Name "app.kubernetes.io/component" (index . 1) | toJson -}}
{{- end -}}

{{/* The labels of an object, as JSON. netdra doctor reads part-of, component and version of pods. */}}
{{- define "netdra.labels" -}}
{{- $own := dict "app.kubernetes.io/name" "netdra" "app.kubernetes.io/instance" .Release.Name "app.kubernetes.io/part-of" "netdra"
  "app.kubernetes.io/version" (.Chart.AppVersion | replace "+" "_") "app.kubernetes.io/managed-by" .Release.Service
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") -}}
{{- merge $own .Values.commonLabels | toJson -}}
{{- end -}}

{{/* The labels of a component's pods, as JSON: (list . COMPONENT LABELS). */}}
{{- define "netdra.podLabels" -}}
{{- $root := index . 0 -}}
{{- merge (include "netdra.selector" . | fromJson) (include "netdra.labels" $root | fromJson) (index . 2) | toJson -}}
{{- end -}}

{{- define "netdra.image" -}}
{{- with .Values.image -}}
{{- with .registry }}{{ . }}/{{ end }}{{ .repository -}}
{{- $digest := .digest -}}
{{- if not (or .digest .tag) }}{{ $digest = index ($.Chart.Annotations | default dict) "networking.dra.io/image-digest" }}{{ end -}}
{{- if $digest -}}@{{ $digest }}{{- else -}}:{{ .tag | default ($.Chart.AppVersion | replace "+" "_") }}{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether objects are rendered that only Helm runs: Jobs and Pods with the annotation helm.sh/hook, and their rights. Anything
else that applies them would run them at once. `helm template` finds no cluster, and so no namespace. */}}
{{- define "netdra.withHooks" -}}
{{- $render := .Values.hooks.render -}}
{{- if or (eq $render "always") (and (eq $render "auto") (lookup "v1" "Namespace" "" "kube-system")) -}}true{{- end -}}
{{- end -}}

{{/* The annotation with which Helm prints the output of a job. Flux' helm-controller (1.6.4) gives Helm nowhere to print it, and Helm
then panics: neither could such a release be removed, nor one with a job after its installation be installed. */}}
{{- define "netdra.hookOutput" -}}
{{- $output := .Values.hooks.output -}}
{{- if or (eq $output "always") (and (eq $output "auto") (not (.Capabilities.APIVersions.Has "helm.toolkit.fluxcd.io/v2"))) -}}
helm.sh/hook-output-log-policy: hook-failed,hook-succeeded
{{- end -}}
{{- end -}}

{{/* Annotations of objects that outlive the release, because all objects of users go with them: for Helm, Argo CD and Flux. */}}
{{- define "netdra.kept" -}}
{{- dict "helm.sh/resource-policy" "keep" "argocd.argoproj.io/sync-options" "Prune=false,Delete=false"
  "kustomize.toolkit.fluxcd.io/prune" "disabled" | toJson -}}
{{- end -}}

{{/* The annotations that the values add to an object, if any: (list . ANNOTATIONS). */}}
{{- define "netdra.annotations" -}}
{{- with merge (dict) (index . 1) (index . 0).Values.commonAnnotations -}}
annotations: {{ toJson . }}
{{- end -}}
{{- end -}}

{{- /* What the console reads in namespaces: in all, or in those of console.namespaces. */ -}}
{{- define "netdra.consoleNamespaced" -}}
- {apiGroups: [""], resources: [pods, events], verbs: [list, watch]}
- {apiGroups: [resource.k8s.io], resources: [resourceclaims], verbs: [list, watch]}
- {apiGroups: [resource.k8s.io], resources: [resourceclaimtemplates], verbs: [list]}
- {apiGroups: [networking.dra.io], resources: [neutronports], verbs: [list, watch]}
{{- end -}}
