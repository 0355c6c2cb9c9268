package loop_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/internal/loop"
	"github.com/holdfast-run/holdfast/policy"
)

// cancelled runs a script that is cancelled by its tools and checks what Run returns.
func cancelled(t *testing.T, w *world, c loop.Conversation, cancel context.CancelCauseFunc, ctx context.Context) {
	t.Helper()
	defer cancel(nil)
	_, err := w.loop().Run(ctx, c, w.env())
	if !errors.Is(err, errStop) {
		t.Errorf("returned %v, want the cause", err)
	}
	w.check()
}

func TestInterruptKillsAndAnswersAll(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	killed := false
	w.tools["Bash"] = func(ctx context.Context, c tool.Call) (tool.Result, error) {
		w.effect(c.ID)
		cancel(errStop)
		<-ctx.Done()
		killed = true
		return tool.Result{}, ctx.Err()
	}
	cancelled(t, w, script(`[{"tools":[{"tool":"Read"},{"tool":"Bash"},{"tool":"Bash"},{"tool":"Read"},{"tool":"Nope"}]}]`), cancel, ctx)
	if !killed || len(w.ran) != 1 {
		t.Errorf("killed %v, ran %v", killed, w.ran)
	}
	var got []string
	for _, f := range entries[holdfast.ToolFinished](w) {
		got = append(got, string(f.Outcome)+" "+f.Content)
	}
	want := []string{
		"ok Read{}", "canceled interrupted: this call was stopped; it may have done part of its work",
		"canceled interrupted: this call was not carried out", "canceled interrupted: this call was not carried out",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if w.order[len(w.order)-1] != "release call-1" {
		t.Error(w.order)
	}
}

func TestInterruptKeepsAResultThatCameAnyway(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	w.tools["Bash"] = func(context.Context, tool.Call) (tool.Result, error) {
		cancel(errStop)
		code := 0
		return tool.Result{Content: "done", Outcome: holdfast.ExitOK, ExitCode: &code}, nil
	}
	cancelled(t, w, script(`[{"tool":"Bash"}]`), cancel, ctx)
	if f := entries[holdfast.ToolFinished](w)[0]; f.Outcome != holdfast.ExitOK || f.Content != "done" {
		t.Errorf("%+v", f)
	}
}

func TestInterruptWhileTheModelSpeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errStop) })
		cancelled(t, w, script(`[{"say":"half","chunks":2,"stall_ms":60000}]`), cancel, ctx)
		if w.shape() != "" {
			t.Errorf("recorded %s", w.shape())
		}
	})
}

func TestInterruptWhileWaitingToRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(10*time.Second, func() { cancel(errStop) })
		cancelled(t, w, script(`[{"error":"rate_limit","retry_after":50}]`), cancel, ctx)
	})
}

func TestInterruptWhileReadersRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		w.tools["Read"] = func(ctx context.Context, _ tool.Call) (tool.Result, error) {
			<-ctx.Done()
			return tool.Result{}, ctx.Err()
		}
		time.AfterFunc(time.Second, func() { cancel(errStop) })
		uses := strings.Repeat(`{"tool":"Read"},`, 9)
		cancelled(t, w, script(`[{"tools":[`+uses+`{"tool":"Bash"}]}]`), cancel, ctx)
		if f := entries[holdfast.ToolFinished](w); len(f) != 10 || f[9].Outcome != holdfast.ExitCanceled {
			t.Errorf("%+v", f)
		}
	})
}

func TestInterruptWhileTheBoxStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.boxWait = time.Hour
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errStop) })
		cancelled(t, w, script(`[{"tools":[{"tool":"Bash"},{"tool":"Read"}]}]`), cancel, ctx)
		if got := w.shape(); got != "assistant requested requested allowed allowed | finished:canceled finished:canceled" {
			t.Error(got)
		}
	})
}

// A turn that was cut off by a crash and is then interrupted: the call that may
// still run in the box is taken up only to be killed.
func TestInterruptOfADanglingCall(t *testing.T) {
	for name, boot := range map[string]string{"there": "boot1", "lost": "boot0"} {
		w := newWorld(t)
		if _, err := w.Box(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errStop)
		entered := 0
		w.tools["Bash"] = func(ctx context.Context, c tool.Call) (tool.Result, error) {
			entered++
			if ctx.Err() == nil || c.ID != "old" {
				t.Error("a new call was made")
			}
			return tool.Result{}, ctx.Err()
		}
		cancelled(t, w, dangling(started("old", boot), loop.Use{State: loop.Requested}, loop.Use{State: loop.Allowed, Name: "Read"}), cancel, ctx)
		want, times := "finished:canceled finished:canceled finished:canceled", 1
		if boot == "boot0" {
			want, times = "unknown | finished:canceled finished:canceled", 0
		}
		if got := w.shape(); got != want || entered != times {
			t.Errorf("%s: %s, entered %d times", name, got, entered)
		}
	}
}

func TestInterruptDuringDecisions(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	w.decide = func(policy.Request) (policy.Decision, error) {
		cancel(errStop)
		return policy.Decision{}, ctx.Err()
	}
	cancelled(t, w, script(`[{"tools":[{"tool":"Bash"},{"tool":"Read"}]}]`), cancel, ctx)
	if got := w.shape(); got != "assistant requested requested finished:canceled finished:canceled" {
		t.Error(got)
	}
}

func TestOutputIsGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var late func(stream, text string)
		w.tools["Bash"] = func(_ context.Context, c tool.Call) (tool.Result, error) {
			late = c.Output
			c.Output("stdout", "a")
			c.Output("stdout", "")
			c.Output("stdout", "b")
			<-time.After(31 * time.Millisecond)
			c.Output("stdout", "c")
			c.Output("stderr", "d")
			c.Output("stdout", strings.Repeat("x", 4096))
			c.Output("stdout", "end")
			return tool.Result{Content: "x"}, nil
		}
		w.run(`[{"tool":"Bash"}]`)
		late("stdout", "too late")
		<-time.After(time.Second)
		var got []string
		for _, d := range w.deltas {
			if o, ok := d.Data.(holdfast.ToolOutput); ok {
				text := o.Text
				if len(text) > 10 {
					text = fmt.Sprint(len(text))
				}
				got = append(got, o.Stream+" "+text)
			}
		}
		want := []string{"stdout ab", "stdout c", "stderr d", "stdout 4096", "stdout end"}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	})
}
