package lifecycle

import (
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
)

// tokenPrefix makes a leaked token recognisable to people and scanners.
const tokenPrefix = "hf_"

const tokenLen = len(tokenPrefix) + 43 // 256 bits in unpadded base64

// OwnerToken reads the owner token from a file, or creates the file, complete and durable, with a
// new token of 256 bits. No other process may create it at the same time: the server holds the lock
// of the data directory. A file that others can read is denied, and one without a valid token is
// invalid: it is not repaired, because the token may be known to others.
func OwnerToken(path string, random io.Reader) (string, error) {
	token, err := ReadToken(path)
	if !holdfast.IsKind(err, holdfast.KindNotFound) {
		return token, err
	}
	var secret [32]byte
	if _, err := io.ReadFull(random, secret[:]); err != nil {
		return "", holdfast.Errorf(holdfast.KindInternal, "token", "the system gave no random bytes for the owner token: %w", err)
	}
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(secret[:])
	if err := durable.Create(path, durable.Bytes([]byte(token+"\n"))); err != nil {
		return "", holdfast.Errorf(holdfast.KindUnavailable, "token", "cannot write the owner token: %w", err).
			WithHint("make %s writable for the server's user", filepath.Dir(path))
	}
	return token, nil
}

// ReadToken reads the owner token that a server wrote. It fails with not_found if there is none,
// and with denied if the file is open to others or not readable by the caller.
func ReadToken(path string) (string, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", holdfast.Errorf(holdfast.KindNotFound, "token", "there is no file %s with the owner token", holdfast.Quote(path)).
			WithHint("start the server with `holdfast serve`, or set HOLDFAST_TOKEN")
	case err != nil:
		return "", holdfast.Errorf(holdfast.KindDenied, "token", "cannot examine the owner token's file: %w", err).
			WithHint("run this command as the user who runs the server, or set HOLDFAST_TOKEN")
	case !info.Mode().IsRegular():
		return "", holdfast.Errorf(holdfast.KindDenied, "token", "the owner token's path %s is not a regular file", holdfast.Quote(path)).
			WithHint("remove the file; the server makes a new owner token at its next start")
	case info.Mode().Perm()&0o077 != 0:
		return "", holdfast.Errorf(holdfast.KindDenied, "token", "the file %s has mode %#o: users other than its owner can access the owner token", holdfast.Quote(path), info.Mode().Perm()).
			WithHint("remove the file and restart the server for a new owner token, or, if nobody has read the token: chmod 600 %s", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", holdfast.Errorf(holdfast.KindDenied, "token", "cannot read the owner token: %w", err).
			WithHint("run this command as the user who runs the server, or set HOLDFAST_TOKEN")
	}
	token := strings.TrimSpace(string(data))
	secret, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(token, tokenPrefix))
	if len(token) != tokenLen || !strings.HasPrefix(token, tokenPrefix) || err != nil || len(secret) != 32 {
		// Do not show the content in the error: it may be part of a secret.
		return "", holdfast.Errorf(holdfast.KindInvalid, "token", "the file %s has no valid owner token", holdfast.Quote(path)).
			WithHint("remove the file; the server makes a new owner token at its next start")
	}
	return token, nil
}
