// Argo CD without its servers: it renders a chart, synchronizes it with a cluster, and compares both, by Argo CD's packages.
//
// Built by testbed/build.py as the program of the component "argo-cd". It reads an application as JSON from its
// standard input, and writes JSON: the number of rendered objects, the result of each synchronized one, and the
// differences that Argo CD would show afterwards ("OutOfSync").
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/argoproj/argo-cd/gitops-engine/v3/pkg/cache"
	"github.com/argoproj/argo-cd/gitops-engine/v3/pkg/diff"
	"github.com/argoproj/argo-cd/gitops-engine/v3/pkg/sync"
	"github.com/argoproj/argo-cd/gitops-engine/v3/pkg/sync/hook"
	"github.com/argoproj/argo-cd/gitops-engine/v3/pkg/utils/kube"
	"github.com/argoproj/argo-cd/gitops-engine/v3/pkg/utils/tracing"
	"github.com/argoproj/argo-cd/v3/common"
	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/reposerver/apiclient"
	"github.com/argoproj/argo-cd/v3/reposerver/repository"
	"github.com/argoproj/argo-cd/v3/util/argo"
	argodiff "github.com/argoproj/argo-cd/v3/util/argo/diff"
	"github.com/argoproj/argo-cd/v3/util/argo/normalizers"
	"github.com/argoproj/argo-cd/v3/util/git"
	utilio "github.com/argoproj/argo-cd/v3/util/io"
	"github.com/go-logr/logr"
	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// Application is what an Application of Argo CD has, as far as it is used here.
type Application struct {
	Kubeconfig        string                               `json:"kubeconfig"`
	Chart             string                               `json:"chart"`
	Name              string                               `json:"name"`
	Namespace         string                               `json:"namespace"`
	Values            string                               `json:"values"`
	ServerSideApply   bool                                 `json:"serverSideApply"`
	ServerSideDiff    bool                                 `json:"serverSideDiff"`
	IgnoreDifferences []v1alpha1.ResourceIgnoreDifferences `json:"ignoreDifferences"`
	// Sync is false to compare alone.
	Sync bool `json:"sync"`
}

// Difference is an object that is out of sync: missing, or with other fields.
type Difference struct {
	Kind     string          `json:"kind"`
	Name     string          `json:"name"`
	Live     json.RawMessage `json:"live"`
	Expected json.RawMessage `json:"expected"`
}

// Report is what the program writes.
type Report struct {
	Rendered    int          `json:"rendered"`
	Phase       string       `json:"phase"`
	Message     string       `json:"message"`
	Failed      []string     `json:"failed"`
	Hooks       []string     `json:"hooks"`
	Differences []Difference `json:"differences"`
}

func main() {
	logrus.SetOutput(os.Stderr)
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var app Application
	if err := json.NewDecoder(os.Stdin).Decode(&app); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", app.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 50, 100
	clusterCache := cache.NewClusterCache(config, cache.SetLogr(logr.Discard()), cache.SetPopulateResourceInfoHandler(
		func(found *unstructured.Unstructured, _ bool) (any, bool) {
			tracked := found.GetAnnotations()[common.AnnotationKeyAppInstance]
			return tracked, tracked != ""
		}))
	if err := clusterCache.EnsureSynced(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	targets, err := render(ctx, app, clusterCache)
	if err != nil {
		return err
	}
	report := Report{Rendered: len(targets), Differences: []Difference{}, Failed: []string{}, Hooks: []string{}}
	if app.Sync {
		compared, err := reconcile(app, targets, clusterCache)
		if err != nil {
			return err
		}
		if err := synchronize(ctx, app, compared, clusterCache, &report); err != nil {
			return err
		}
		// The cache learns of new kinds, and of the written objects, when it is filled anew.
		clusterCache.Invalidate()
		if err := clusterCache.EnsureSynced(); err != nil {
			return err
		}
	}
	compared, err := reconcile(app, targets, clusterCache)
	if err != nil {
		return err
	}
	for _, target := range targets {
		if hook.IsHook(target) {
			report.Hooks = append(report.Hooks, target.GetKind()+" "+target.GetName())
		}
	}
	if report.Differences, err = compare(ctx, app, compared, clusterCache); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}

// render is what Argo CD's repository server does for an application with a chart.
func render(ctx context.Context, app Application, cluster cache.ClusterCache) ([]*unstructured.Unstructured, error) {
	source := v1alpha1.ApplicationSource{Path: ".", Helm: &v1alpha1.ApplicationSourceHelm{Values: app.Values}}
	request := apiclient.ManifestRequest{
		Repo:              &v1alpha1.Repository{Repo: "https://git.example.com/netdra"},
		AppName:           app.Name,
		Namespace:         app.Namespace,
		AppLabelKey:       common.LabelKeyAppInstance,
		TrackingMethod:    string(v1alpha1.TrackingMethodAnnotation),
		ApplicationSource: &source,
		KubeVersion:       cluster.GetServerVersion(),
		ApiVersions:       argo.APIResourcesToStrings(cluster.GetAPIResources(), true),
	}
	paths := utilio.NewRandomizedTempPaths(os.TempDir())
	answer, err := repository.GenerateManifests(
		ctx, app.Chart, app.Chart, "main", &request, false, git.NoopCredsStore{}, resource.MustParse("0"), paths)
	if err != nil {
		return nil, err
	}
	objects := make([]*unstructured.Unstructured, 0, len(answer.Manifests))
	for _, text := range answer.Manifests {
		object := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(text), object); err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

func reconcile(app Application, targets []*unstructured.Unstructured, cluster cache.ClusterCache) (sync.ReconciliationResult, error) {
	copies := make([]*unstructured.Unstructured, len(targets))
	for number, target := range targets {
		copies[number] = target.DeepCopy()
	}
	live, err := cluster.GetManagedLiveObjs(copies, func(found *cache.Resource) bool {
		tracked, _ := found.Info.(string)
		return tracked != ""
	})
	if err != nil {
		return sync.ReconciliationResult{}, err
	}
	return sync.Reconcile(copies, live, app.Namespace, cluster), nil
}

// synchronize applies the objects with the options of Argo CD's controller.
func synchronize(ctx context.Context, app Application, compared sync.ReconciliationResult, cluster cache.ClusterCache, report *Report) error {
	config, err := clientcmd.BuildConfigFromFlags("", app.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 50, 100
	kubectl := &kube.KubectlCmd{Log: logr.Discard(), Tracer: tracing.NopTracer{}}
	syncing, cleanup, err := sync.NewSyncContext("main", compared, config, config, kubectl, app.Namespace,
		sync.WithLogr(logr.Discard()),
		sync.WithOperationSettings(false, false, false, false),
		sync.WithManifestValidation(true),
		sync.WithServerSideApply(app.ServerSideApply),
		sync.WithServerSideApplyManager(common.ArgoCDSSAManager),
		sync.WithNamespaceModifier(func(_, live *unstructured.Unstructured) (bool, error) { return live == nil, nil }),
	)
	if err != nil {
		return err
	}
	defer cleanup()
	for {
		syncing.Sync(ctx)
		phase, message, results := syncing.GetState()
		if phase.Completed() || ctx.Err() != nil {
			report.Phase, report.Message = string(phase), message
			for _, result := range results {
				if result.Status != "Synced" {
					report.Failed = append(report.Failed, fmt.Sprintf("%s: %s: %s", result.ResourceKey, result.Status, result.Message))
				}
			}
			return nil
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// compare is what decides whether an application is synced.
func compare(ctx context.Context, app Application, compared sync.ReconciliationResult, cluster cache.ClusterCache) ([]Difference, error) {
	builder := argodiff.NewDiffConfigBuilder().
		WithDiffSettings(app.IgnoreDifferences, nil, false, normalizers.IgnoreNormalizerOpts{}).
		WithTracking(common.LabelKeyAppInstance, string(v1alpha1.TrackingMethodAnnotation)).
		WithNoCache().
		WithGVKParser(cluster.GetGVKParser()).
		WithManager(common.ArgoCDSSAManager).
		WithServerSideDiff(app.ServerSideDiff)
	if app.ServerSideDiff {
		config, err := clientcmd.BuildConfigFromFlags("", app.Kubeconfig)
		if err != nil {
			return nil, err
		}
		kubectl := &kube.KubectlCmd{Log: logr.Discard(), Tracer: tracing.NopTracer{}}
		operations, cleanup, err := kubectl.ManageServerSideDiffDryRuns(config)
		if err != nil {
			return nil, err
		}
		defer cleanup()
		builder = builder.WithServerSideDryRunner(diff.NewK8sServerSideDryRunner(operations))
	}
	settings, err := builder.Build()
	if err != nil {
		return nil, err
	}
	results, err := argodiff.StateDiffs(ctx, compared.Live, compared.Target, settings)
	if err != nil {
		return nil, err
	}
	differences := []Difference{}
	for number, result := range results.Diffs {
		target, live := compared.Target[number], compared.Live[number]
		object := target
		if object == nil {
			object = live
		}
		if result.Modified || target == nil || live == nil {
			differences = append(differences, Difference{object.GetKind(), object.GetName(), raw(result.NormalizedLive), raw(result.PredictedLive)})
		}
	}
	return differences, nil
}

func raw(text []byte) json.RawMessage {
	if len(text) == 0 {
		return json.RawMessage("null")
	}
	return text
}
