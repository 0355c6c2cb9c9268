package app

import (
	"crypto/rand"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/checks"
	"github.com/holdfast-run/holdfast/internal/lifecycle"
)

// openIdentity reads or makes the identity of the data directory, whose lock the caller
// holds, and logs unusual cases.
func openIdentity(data string, opt Options, fresh bool) (lifecycle.Identity, error) {
	id, err := lifecycle.OpenIdentity(data, rand.Reader, opt.AcceptCopy)
	switch {
	case err != nil:
		return id, err
	case id.Copy:
		opt.Log.Warn("this data directory is a copy of another server's, or was restored: it starts nothing until it is accepted", "data", data, "hint", acceptHint(data))
	case id.Made && opt.AcceptCopy && !fresh:
		opt.Log.Info("the copy is a server of its own from now on", "data", data)
	case id.Made && !fresh:
		opt.Log.Warn("the data directory had no identity and has a new one", "data", data)
	}
	return id, nil
}

func acceptHint(data string) string {
	return "holdfast serve --accept-copy --data " + checks.Quoted(data)
}

// held returns why a server on a copied data directory starts no turns, or nil for any other
// server (I-36, HZ-20). The original may run the same queued turns, retries and webhooks, so
// both would run them.
func (s *server) held() error {
	if !s.identity.Copy {
		return nil
	}
	return holdfast.Errorf(holdfast.KindConflict, "serve", "the data directory is a copy of another server's, or was restored from a backup: sessions can be read, but no work is started").
		WithHint("if the original server does not work on the same sessions, restart this server with: %s", acceptHint(s.cfg.Data))
}
