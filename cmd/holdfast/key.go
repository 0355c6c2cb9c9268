package main

import (
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/config"
)

type keyCmd struct {
	Create keyCreateCmd `cmd:"" help:"Make an API key; its secret is shown once."`
	List   keyListCmd   `cmd:"" aliases:"ls" help:"List the API keys."`
	Revoke keyRevokeCmd `cmd:"" help:"Revoke API keys, at once and for good."`
}

type keyCreateCmd struct {
	Name     string   `placeholder:"TEXT" help:"What it is for."`
	Scope    []string `placeholder:"SCOPE" help:"What it may do: read, write (the default) or admin; each includes the ones before it."`
	MaxTrust string   `placeholder:"TRUST" help:"The highest trust that sessions get through it: untrusted (the default) or trusted."`
	Offline  bool     `help:"Make it without a server, in the data directory, while none runs there."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*keyCreateCmd) Help() string {
	return `Prints the secret alone on stdout. Use it as HOLDFAST_TOKEN; the server keeps only its hash.

Examples:
  holdfast key create --name ci
  holdfast key create --name dashboard --scope read
  holdfast key create --offline     # before the first start on an address that other machines can reach`
}

// Run makes an API key and prints its secret.
func (k *keyCreateCmd) Run(e *env) error {
	req := holdfast.CreateKey{Name: k.Name, Scopes: k.Scope, MaxTrust: k.MaxTrust}
	made, secret, err := k.create(e, req)
	if err != nil {
		return err
	}
	if e.json {
		return e.print(map[string]any{"key": made, "secret": secret})
	}
	if made.MaxTrust == holdfast.Trusted {
		e.note("sessions made with this key may be trusted: their tools can do everything the server's user can do")
	}
	e.note("key %s; this is the only time its secret is shown", made.ID)
	return e.say(nil, "%s", secret)
}

func (k *keyCreateCmd) create(e *env, req holdfast.CreateKey) (holdfast.Key, string, error) {
	if k.Offline {
		dir, err := config.DataDir(e.getenv)
		if err != nil {
			return holdfast.Key{}, "", err
		}
		return app.CreateKey(e.ctx, dir, req)
	}
	c, err := e.client()
	if err != nil {
		return holdfast.Key{}, "", err
	}
	return c.CreateKey(e.ctx, req)
}

type keyListCmd struct{}

// Run lists the keys.
func (*keyListCmd) Run(e *env) error {
	list, err := ask(e, (*client.Client).Keys)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, k := range list {
		used, state := "never", "active"
		if k.LastUsedAt != nil {
			used = when(*k.LastUsedAt)
		}
		if k.RevokedAt != nil {
			state = "revoked " + when(*k.RevokedAt)
		}
		rows = append(rows, []string{string(k.ID), k.Name, scopesOf(k), string(k.MaxTrust), when(k.CreatedAt), used, state})
	}
	return e.listing(map[string]any{"keys": list}, []string{"ID", "NAME", "SCOPES", "MAX TRUST", "CREATED", "LAST USED", "STATE"}, rows)
}

func scopesOf(k holdfast.Key) string {
	var out []string
	for _, s := range k.Scopes {
		out = append(out, string(s))
	}
	return strings.Join(out, ",")
}

type keyRevokeCmd struct {
	IDs []string `arg:"" name:"id" help:"Ids of keys, or unique beginnings of them."`
}

// Run revokes the keys, one after the other.
func (k *keyRevokeCmd) Run(e *env) error {
	c, err := e.client()
	if err != nil {
		return err
	}
	ids, err := e.keyIDs(c, k.IDs)
	if err != nil {
		return err
	}
	var revoked []holdfast.Key
	for _, id := range ids {
		key, err := c.RevokeKey(e.ctx, id)
		if err != nil {
			return err
		}
		revoked = append(revoked, key)
		if !e.json {
			fmt.Fprintf(e.stdout, "revoked %s\n", id)
		}
	}
	if e.json {
		return e.print(map[string]any{"keys": revoked})
	}
	return nil
}

// keyIDs returns the ids of the keys that names mean, each an id or a unique beginning of one;
// if one name fails, it returns none.
func (e *env) keyIDs(c *client.Client, names []string) ([]holdfast.KeyID, error) {
	list, err := c.Keys(e.ctx)
	if err != nil {
		return nil, err
	}
	var out []holdfast.KeyID
	for _, name := range names {
		if secret, ok := strings.CutPrefix(name, "hfk_"); ok {
			id, _, _ := strings.Cut(secret, "_")
			return nil, holdfast.Errorf(holdfast.KindInvalid, "key", "the argument is the secret of an API key, not the key's id").
				WithHint("holdfast key revoke %s", word(cut(line(id), 16)))
		}
		var found []holdfast.KeyID
		for _, k := range list {
			if name != "" && strings.HasPrefix(string(k.ID), name) {
				found = append(found, k.ID)
			}
		}
		switch len(found) {
		case 1:
			out = append(out, found[0])
		case 0:
			return nil, holdfast.Errorf(holdfast.KindNotFound, "key", "no key's id begins with %s", holdfast.Quote(name)).
				WithHint("holdfast key list shows the ids")
		default:
			return nil, holdfast.Errorf(holdfast.KindInvalid, "key", "%s is the beginning of several key ids", holdfast.Quote(name)).
				WithHint("give more characters of the key's id")
		}
	}
	return out, nil
}
