package main

import (
	"bytes"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
)

type secretCmd struct {
	Set    secretSetCmd    `cmd:"" help:"Keep a credential, as the key of a model provider; the value comes from stdin."`
	List   secretListCmd   `cmd:"" aliases:"ls" help:"List the credentials by name; no value is shown."`
	Rm     secretRmCmd     `cmd:"" help:"Remove credentials."`
	Rotate secretRotateCmd `cmd:"" help:"Replace the root key, and encrypt every credential and session environment under the new one."`
}

type secretSetCmd struct {
	Name string `arg:"" help:"The name. anthropic and openai are the keys of these providers."`
	File string `type:"path" placeholder:"FILE" help:"Read the value from a file instead of stdin."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*secretSetCmd) Help() string {
	return `The value is never an argument: other users of the machine can see those. White space
around it is left out. On a terminal it is one line and is not shown as you type.

Examples:
  holdfast secret set anthropic
  holdfast secret set anthropic < key.txt
  holdfast secret set openai --file key.txt`
}

// Run stores a credential on the server.
func (s *secretSetCmd) Run(e *env) error {
	name, err := holdfast.Parse[holdfast.SecretName](s.Name)
	if err != nil {
		return err
	}
	value, err := readSecret(e, "secret set", s.File, "type or paste the value, one line, then Enter; it is not shown")
	if err != nil {
		return err
	}
	if value = bytes.TrimSpace(value); len(value) == 0 {
		return holdfast.Errorf(holdfast.KindInvalid, "secret set", "the value of the secret %s is empty", name).
			WithHint("holdfast secret set %s --file FILE", name)
	}
	c, err := e.client()
	if err != nil {
		return err
	}
	set, err := c.SetSecret(e.ctx, name, value)
	if err != nil {
		return err
	}
	if err := e.say(map[string]any{"secret": set}, "%s is kept", set.Name); err != nil || e.json {
		return err
	}
	// If the secret is the key of a model provider, other models are available now: show the default model.
	if m, err := c.Models(e.ctx); err == nil && slices.ContainsFunc(m.Providers, func(p holdfast.ModelProvider) bool { return p.Name == string(set.Name) }) {
		return e.say(nil, "%s", line(modelLine(m)))
	}
	return nil
}

type secretListCmd struct{}

// Run lists the credentials.
func (*secretListCmd) Run(e *env) error {
	list, err := ask(e, (*client.Client).Secrets)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, s := range list {
		rows = append(rows, []string{string(s.Name), s.KeyID, when(s.CreatedAt), when(s.UpdatedAt)})
	}
	return e.listing(map[string]any{"secrets": list}, []string{"NAME", "ROOT KEY", "CREATED", "SET"}, rows)
}

type secretRmCmd struct {
	Names []string `arg:"" help:"The names."`
}

// Run removes credentials.
func (s *secretRmCmd) Run(e *env) error {
	c, err := e.client()
	if err != nil {
		return err
	}
	for _, one := range s.Names {
		name, err := holdfast.Parse[holdfast.SecretName](one)
		if err == nil {
			err = c.RemoveSecret(e.ctx, name)
		}
		if err != nil {
			return err
		}
		if err := e.say(map[string]any{"removed": name}, "%s is removed", name); err != nil {
			return err
		}
	}
	return nil
}

type secretRotateCmd struct{}

// Run rotates the root key.
func (*secretRotateCmd) Run(e *env) error {
	list, err := ask(e, (*client.Client).RotateSecrets)
	if err != nil {
		return err
	}
	return e.say(map[string]any{"secrets": list}, "%s and all session environments are under a new root key", count(len(list), "secret", "secrets"))
}
