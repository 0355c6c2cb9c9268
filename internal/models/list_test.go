package models

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/model/scripted"
)

// TestDefault: sessions that name no model get that of the first provider there is, the
// first of its list where it has no model of its own, and words where that is not known:
// never the double in its place.
//
// FH-3.
func TestDefault(t *testing.T) {
	lists := func(names ...string) func(context.Context) ([]string, error) {
		return func(context.Context) ([]string, error) { return names, nil }
	}
	broken := func(context.Context) ([]string, error) {
		return nil, &model.Failure{Class: "cut", Message: "cannot reach h: connection refused"}
	}
	never := func(context.Context) ([]string, error) { panic("a list that nobody needs") }
	off := func() bool { return false }
	p := scripted.New()
	for name, k := range map[string]struct {
		sources    []Source
		want, says string
	}{
		"None":           {nil, holdfast.ScriptedModel, ""},
		"Unconfigured":   {[]Source{{Name: "a", Default: "m", Provider: p, Ready: off}}, holdfast.ScriptedModel, ""},
		"Own":            {[]Source{{Name: "a", Default: "m", Provider: p, List: never}, {Name: "b", Provider: p, List: never}}, "a/m", ""},
		"First":          {[]Source{{Name: "a", Default: "m", Provider: p, Ready: off}, {Name: "b", Provider: p, List: lists("x", "y")}}, "b/x", ""},
		"Slashes":        {[]Source{{Name: "b", Provider: p, List: lists("org/x:7b")}}, "b/org/x:7b", ""},
		"Unreachable":    {[]Source{{Name: "b", Host: "h", Provider: p, List: broken}}, "", "the model provider b at h did not list its models: cannot reach h: connection refused"},
		"NoModels":       {[]Source{{Name: "b", Host: "h", Provider: p, List: lists()}}, "", "the model provider b at h has no model"},
		"WithoutAnyList": {[]Source{{Name: "b", Provider: p}}, holdfast.ScriptedModel, ""},
	} {
		got, err := New(p, nil, k.sources...).Default(t.Context())
		if got != k.want || (err == nil) != (k.says == "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if err != nil && (!holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), k.says) || holdfast.HintOf(err) == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestProviders: each provider is told of, with its list, without one, and with what would
// configure it.
func TestProviders(t *testing.T) {
	p := scripted.New()
	got := New(p, nil,
		Source{Name: "a", Host: "ha", Provider: p, Ready: func() bool { return false }, Missing: "set A"},
		Source{Name: "b", Host: "hb", Provider: p, List: func(context.Context) ([]string, error) { return []string{"x"}, nil }},
		Source{Name: "c", Host: "hc", Provider: p, List: func(context.Context) ([]string, error) { return nil, errors.New("broken") }},
	).Providers(t.Context())
	if len(got) != 3 || got[0].Configured || got[0].Hint != "set A" || !slices.Equal(got[1].Models, []string{"b/x"}) || got[1].Host != "hb" || got[2].Error != "broken" || got[2].Models == nil {
		t.Errorf("%+v", got)
	}
}

// TestListIsAskedOnce: those who come while a provider is asked wait for the same answer,
// which is kept for a while, a failure shortly, and what a caller gave up not at all. A
// provider that hangs is not waited for.
func TestListIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, asked := newList(), 0
		var fail error
		ask := func(ctx context.Context) ([]string, error) {
			asked++
			select {
			case <-time.After(time.Second):
				return []string{"x"}, fail
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if names, err := l.get(t.Context(), ask); err != nil || len(names) != 1 {
					t.Errorf("%q %v", names, err)
				}
			})
		}
		wg.Wait()
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
		<-time.After(listKept)
		gone, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := l.get(gone, ask); err == nil {
			t.Error("a caller that gave up got an answer")
		}
		fail = errors.New("broken")
		if _, err := l.get(t.Context(), ask); !errors.Is(err, fail) || asked != 3 {
			t.Errorf("asked %d times, %v", asked, err)
		}
		<-time.After(failedKept)
		hang := func(ctx context.Context) ([]string, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		began := time.Now()
		if _, err := l.get(t.Context(), hang); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != listTime {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
