package httpapi

import (
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

func TestSnapshotRoutes(t *testing.T) {
	f, srv := start(t, nil)
	for _, c := range []struct {
		request
		asked any
		want  string
	}{
		{request{"GET", "/v1/snapshots", "", nil}, "store", `{"checkpoints":0,"packs":0,"bytes":0,"unused_packs":0,"unused_bytes":0,"sessions":[]}`},
		{
			request{"POST", "/v1/snapshots/collect", "", nil},
			[]any{"collect", false},
			`{"dry_run":false,"checkpoints":[],"merged":0,"merged_bytes":0,"marked":[],"marked_bytes":0,"removed":[],"removed_bytes":0,"faults":[]}`,
		},
		{
			request{"POST", "/v1/snapshots/collect", `{"dry_run":true}`, nil},
			[]any{"collect", true},
			`{"dry_run":true,"checkpoints":[],"merged":0,"merged_bytes":0,"marked":[],"marked_bytes":0,"removed":[],"removed_bytes":0,"faults":[]}`,
		},
		{request{"POST", "/v1/snapshots/verify", "", nil}, "verify", `{"checkpoints":0,"packs":0,"blobs":0,"bytes":0,"damaged":[],"faults":[]}`},
	} {
		resp, body := do(t, srv, c.request)
		if got := strings.TrimSpace(string(body)); resp.StatusCode != 200 || got != c.want || !reflect.DeepEqual(f.last, c.asked) {
			t.Errorf("%s %s %s: %d %s, asked %v", c.method, c.path, c.body, resp.StatusCode, got, f.last)
		}
	}
	f.mu.Lock()
	f.fail = holdfast.Errorf(holdfast.KindUnavailable, "snapshot.collect", "the disk is full").WithHint("free space")
	f.mu.Unlock()
	for _, r := range []request{{"GET", "/v1/snapshots", "", nil}, {"POST", "/v1/snapshots/collect", "", nil}, {"POST", "/v1/snapshots/verify", "", nil}} {
		resp, body := do(t, srv, r)
		if p := wantProblem(t, resp, body, 503, holdfast.KindUnavailable); p.Hint != "free space" {
			t.Errorf("%s: %+v", r.path, p)
		}
	}
}

// TestSnapshotsNeedAdmin: the reports name sessions and files of all keys, so keys with less than the scope
// admin do not get them.
func TestSnapshotsNeedAdmin(t *testing.T) {
	f, srv := start(t, nil)
	withTurns(t, f, 1)
	for scopes, want := range map[string]int{`["read"]`: 403, `["read","write"]`: 403, `["admin"]`: 200} {
		_, key := newKey(t, srv, `{"scopes":`+scopes+`}`)
		for _, r := range []request{
			{"GET", "/v1/snapshots", "", bearer(key)}, {"POST", "/v1/snapshots/collect", `{"dry_run":true}`, bearer(key)}, {"POST", "/v1/snapshots/verify", "", bearer(key)},
		} {
			f.mu.Lock()
			f.last = nil
			f.mu.Unlock()
			resp, body := do(t, srv, r)
			if resp.StatusCode != want || (f.last != nil) != (want == 200) {
				t.Errorf("%s with %s: %d %s, asked %v", r.path, scopes, resp.StatusCode, body, f.last)
			}
		}
	}
}

func TestSnapshotsThroughTheClient(t *testing.T) {
	f, srv := start(t, nil)
	c, ctx := newClient(t, srv), t.Context()
	id := withTurns(t, f, 3)
	held, err := c.Snapshots(ctx)
	if err != nil || held.Checkpoints != 3 || len(held.Sessions) != 1 || held.Sessions[0].Session != id || held.Sessions[0].Bytes != 10 {
		t.Errorf("%+v %v", held, err)
	}
	for _, dry := range []bool{true, false} {
		done, err := c.CollectSnapshots(ctx, dry)
		if err != nil || done.DryRun != dry || len(done.Checkpoints) != 1 || !reflect.DeepEqual(f.last, []any{"collect", dry}) {
			t.Errorf("%+v %v, asked %v", done, err, f.last)
		}
	}
	rep, err := c.VerifySnapshots(ctx)
	if err != nil || len(rep.Damaged) != 1 || rep.Damaged[0].Session != id || f.last != "verify" {
		t.Errorf("%+v %v, asked %v", rep, err, f.last)
	}
}
