// The server's token, where it asks for one. It is sent once and kept by the browser, not the page.

import { api } from "./api.js";
import { slot } from "./dom.js";
import { clean } from "./words.js";

export function createLogin(entered) {
  const logout = document.getElementById("logout");
  slot("login").addEventListener("submit", async (event) => {
    event.preventDefault();
    const token = slot("token").value;
    slot("token").value = "";
    slot("login-fault").textContent = "";
    try {
      await api.login(token);
      entered();
    } catch (error) {
      slot("login-fault").textContent = error.status === 401 ? "This is not the token." : clean(error.message);
    }
  });
  logout?.addEventListener("click", async () => {
    await api.logout();
    location.reload();
  });
  return {
    ask() {
      slot("login").hidden = false;
      slot("token").focus();
    },
    done() {
      slot("login").hidden = true;
      if (logout) logout.hidden = false;
    },
  };
}
