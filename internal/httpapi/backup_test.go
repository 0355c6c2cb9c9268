package httpapi

import (
	"context"
	"io"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// fakeBackups writes a short backup.
type fakeBackups struct{ f *fakeEngine }

func (b fakeBackups) Write(_ context.Context, out io.Writer) error {
	if err := b.f.see("backup"); err != nil {
		return err
	}
	_, err := io.WriteString(out, "everything")
	return err
}

// TestBackupRoute answers with the bytes that the server writes, for keys with the scope admin only. An error before the
// first byte is a problem.
func TestBackupRoute(t *testing.T) {
	f, srv := start(t, nil)
	resp, body := do(t, srv, request{"POST", "/v1/backup", "", nil})
	if resp.StatusCode != 200 || string(body) != "everything" || resp.Header.Get("Content-Type") != backupType {
		t.Errorf("%d %q %v", resp.StatusCode, body, resp.Header)
	}
	for scopes, want := range map[string]int{`["read","write"]`: 403, `["admin"]`: 200} {
		_, key := newKey(t, srv, `{"scopes":`+scopes+`}`)
		if resp, body := do(t, srv, request{"POST", "/v1/backup", "", bearer(key)}); resp.StatusCode != want {
			t.Errorf("%s: %d %s", scopes, resp.StatusCode, body)
		}
	}
	f.mu.Lock()
	f.fail = holdfast.Errorf(holdfast.KindConflict, "backup", "another one is being written").WithHint("wait")
	f.mu.Unlock()
	resp, body = do(t, srv, request{"POST", "/v1/backup", "", nil})
	if p := wantProblem(t, resp, body, 409, holdfast.KindConflict); p.Hint != "wait" {
		t.Errorf("%+v", p)
	}
}
