//go:build linux

package local_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// BenchmarkShared measures, in turns on the same machine, a join, the first exec of a session in a
// shared box, a later one there, and one in a private box (gate: later ≤ private + 100 µs).
func BenchmarkShared(b *testing.B) {
	bench(b, func(ctx context.Context, d *local.Driver, s sandbox.Spec) {
		private := hello(b, ctx, d, s)
		defer private.Close()
		ss := s
		ss.Box, ss.Dir, ss.Shared = "w-bench-shared", s.Dir+"-shared", true
		defer d.Remove(context.Background(), ss.Box)
		shared := hello(b, ctx, d, ss)
		defer shared.Close()
		exec := func(box *sandbox.Box) time.Duration {
			id, _ := holdfast.NewUUID(time.Now(), rand.Reader)
			call := sandbox.Call{ID: holdfast.CallID(id)}
			began := time.Now()
			if res, err := box.Exec(ctx, call, wire.ExecRequest{Argv: []string{"/bin/true"}}, sandbox.ExecOptions{}); err != nil || res.Class != holdfast.ExitOK {
				b.Fatal(res, err)
			}
			took := time.Since(began)
			box.Release(call.ID)
			return took
		}
		exec(private)
		times := map[string][]time.Duration{}
		for b.Loop() {
			id, _ := holdfast.NewUUID(time.Now(), rand.Reader)
			session := holdfast.SessionID(id)
			began := time.Now()
			if err := d.Join(ctx, ss.Box, sandbox.Member{Session: session, Home: filepath.Join(s.Dir, fmt.Sprint("home-", id)), Token: 1}); err != nil {
				b.Fatal(err)
			}
			times["join"] = append(times["join"], time.Since(began))
			one := shared.Of(session)
			times["first"] = append(times["first"], exec(one))
			for range 10 {
				times["later"] = append(times["later"], exec(one))
				times["private"] = append(times["private"], exec(private))
			}
			began = time.Now()
			if err := one.Leave(ctx, wire.LeaveRequest{}); err != nil {
				b.Fatal(err)
			}
			times["leave"] = append(times["leave"], time.Since(began))
		}
		for what, list := range times {
			slices.Sort(list)
			b.ReportMetric(float64(list[len(list)/2].Microseconds()), "µs-"+what)
		}
	})
}
