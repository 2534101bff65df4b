// Opens or closes the sidebar before the page is drawn. Django's own script does it after the page
// is drawn, which moves the whole page sideways.

document.getElementById("main").classList.toggle(
  "shifted", localStorage.getItem("django.admin.navSidebarIsOpen") !== "false",
);
