package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/durable"
)

// lastName is the name for the session that this user last created, forked, wrote to or opened in a chat on a server.
const lastName = "@last"

// maxName is the longest name that is looked up, in bytes; no title is longer.
const maxName = 500

// onSession returns a client, and the session that a name means: its id, the beginning or ending
// of its id, @last, its title, or the beginning of its title if no other session fits.
func (e *env) onSession(name string) (*client.Client, holdfast.SessionID, error) {
	c, err := e.client()
	if err != nil {
		return nil, "", err
	}
	id, err := e.resolve(c, name)
	return c, id, err
}

// resolve returns the id of the session that a name means.
func (e *env) resolve(c *client.Client, name string) (holdfast.SessionID, error) {
	s, err := e.named(c, name, false)
	return s.ID, err
}

// resolveWhole does what resolve does, for commands whose mistakes are hard to undo: it refuses the
// beginning of a title. With trash, it looks for the session in the trash.
func (e *env) resolveWhole(c *client.Client, name string, trash bool) (holdfast.SessionID, error) {
	s, err := e.named(c, name, trash)
	if err != nil || s.Title == "" || strings.EqualFold(s.Title, name) || name == lastName || partOfID(s.ID, name) {
		return s.ID, err
	}
	return "", holdfast.Errorf(holdfast.KindInvalid, "session", "%s is only the beginning of the session title %s", holdfast.Quote(name), holdfast.Quote(s.Title)).
		WithHint("give the whole title, or the id %s", shortID(s.ID))
}

func partOfID(id holdfast.SessionID, name string) bool {
	n := strings.ToLower(name)
	return strings.HasPrefix(string(id), n) || strings.HasSuffix(string(id), n)
}

// named returns the session that a name means. For a whole id it asks no server and sets only
// the ID.
func (e *env) named(c *client.Client, name string, trash bool) (holdfast.Session, error) {
	if id, err := holdfast.Parse[holdfast.SessionID](name); err == nil {
		return holdfast.Session{ID: id}, nil
	}
	switch {
	case name == lastName:
		id, err := e.last()
		return holdfast.Session{ID: id}, err
	case strings.TrimSpace(name) == "" || strings.HasPrefix(name, "@") || len(name) > maxName:
		return holdfast.Session{}, holdfast.Errorf(holdfast.KindInvalid, "session", "%s cannot name a session", holdfast.Quote(name)).
			WithHint("give a session's id, the beginning or ending of it, a title, or %s; holdfast session list shows the sessions", lastName)
	}
	const shown = 3
	page, err := c.Sessions(e.ctx, holdfast.SessionFilter{Name: name, Trash: trash, Limit: shown + 1})
	if err != nil {
		return holdfast.Session{}, err
	}
	switch found := page.Sessions; len(found) {
	case 0:
		none := holdfast.Errorf(holdfast.KindNotFound, "session", "no session has an id or a title like %s", holdfast.Quote(name))
		if trash {
			return holdfast.Session{}, none.WithHint("holdfast trash list shows the deleted sessions")
		}
		return holdfast.Session{}, none.WithHint("holdfast session list shows the sessions, holdfast trash list the deleted sessions")
	case 1:
		return found[0], nil
	default:
		var those []string
		for _, s := range found[:min(len(found), shown)] {
			those = append(those, strings.TrimSpace(fmt.Sprintf("%s %s", shortID(s.ID), cut(line(s.Title), 40))))
		}
		more := ""
		if len(found) > shown {
			more = " and others"
		}
		return holdfast.Session{}, holdfast.Errorf(holdfast.KindInvalid, "session", "the name %s fits several sessions: %s%s",
			holdfast.Quote(name), strings.Join(those, ", "), more).WithHint("give more of the session's id or title")
	}
}

// last returns the session that remember stored for this server.
func (e *env) last() (holdfast.SessionID, error) {
	none := func() error {
		return holdfast.Errorf(holdfast.KindNotFound, "session", "there is no session %s: this user has not yet created or used a session of this server", lastName).
			WithHint("holdfast session list shows the sessions")
	}
	path := e.lastFile()
	if path == "" {
		return "", none()
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", none()
	} else if err != nil {
		return "", holdfast.Errorf(holdfast.KindUnavailable, "session", "the session %s cannot be looked up: %w", lastName, err).WithHint("holdfast session list shows the sessions")
	}
	id, err := holdfast.Parse[holdfast.SessionID](strings.TrimSpace(string(raw)))
	if err != nil {
		return "", none()
	}
	return id, nil
}

// remember records a session as @last. It is a convenience: errors are ignored.
func (e *env) remember(id holdfast.SessionID) {
	if path := e.lastFile(); path != "" && os.MkdirAll(filepath.Dir(path), 0o700) == nil {
		_ = durable.Replace(path, durable.Bytes([]byte(string(id)+"\n")))
	}
}

// lastFile returns the path of the file that records @last of this server, or "" without a home
// directory.
func (e *env) lastFile() string {
	server := e.givenURL()
	if c, err := e.chosen(); err == nil && c != nil {
		server = c.URL
	}
	if server == "" {
		// The server of the data directory may listen at another address after each start, so the directory identifies it
		// instead.
		dir, err := config.DataDir(e.getenv)
		if err != nil {
			return ""
		}
		server = dir
	}
	sum := sha256.Sum256([]byte(server))
	return e.userFile("XDG_STATE_HOME", filepath.Join(".local", "state"), "last-"+hex.EncodeToString(sum[:8]))
}
