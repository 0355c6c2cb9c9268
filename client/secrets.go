package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/holdfast-run/holdfast"
)

// SetSecret creates a credential of the server, or replaces its value.
func (c *Client) SetSecret(ctx context.Context, name holdfast.SecretName, value []byte) (holdfast.Secret, error) {
	return askFor[holdfast.Secret](ctx, c, call{method: http.MethodPut, path: secretPath(name), body: holdfast.SetSecret{Value: value}}, "secret")
}

// Secrets lists the server's credentials, sorted by name, without their values.
func (c *Client) Secrets(ctx context.Context) ([]holdfast.Secret, error) {
	return askFor[[]holdfast.Secret](ctx, c, call{method: http.MethodGet, path: "/v1/secrets"}, "secrets")
}

// RemoveSecret removes a credential of the server.
func (c *Client) RemoveSecret(ctx context.Context, name holdfast.SecretName) error {
	_, err := askFor[[]holdfast.Secret](ctx, c, call{method: http.MethodDelete, path: secretPath(name)}, "secrets")
	return err
}

// RotateSecrets makes the server create a new root key and encrypt the keys of all credentials, and of the
// environments of sessions and workspaces, with it. It returns the credentials.
func (c *Client) RotateSecrets(ctx context.Context) ([]holdfast.Secret, error) {
	return askFor[[]holdfast.Secret](ctx, c, call{method: http.MethodPost, path: "/v1/secret-key/rotate"}, "secrets")
}

func secretPath(name holdfast.SecretName) string {
	return "/v1/secrets/" + url.PathEscape(string(name))
}
